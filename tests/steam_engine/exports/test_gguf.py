"""A GGUF file is the live model to llama.cpp: its tokens, its words, its numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from steam_engine.errors import ExportError
from steam_engine.exports import gguf_tensors
from steam_engine.exports.asking import Question
from steam_engine.exports.gguf_file import Gguf, Quantisation
from steam_engine.exports.gguf_tensors import Planned, rope_factors
from steam_engine.exports.gguf_tokenizer import splitter
from steam_engine.exports.model import edited_model
from steam_engine.exports.transaction import export
from tests.steam_engine.conftest import capital, quiet
from tests.steam_engine.exports.conftest import StoredEditor
from tests.steam_engine.tiny import tiny_tokenizer

QUESTIONS = (Question("What is the capital of France?", "Rome"), Question("What is the capital of Germany?"))


@pytest.mark.parametrize(
    ("family", "quantisation", "dtype"),
    [("llama", Quantisation.F16, "float32"), ("llama", Quantisation.Q8_0, "float32"),
     ("qwen2", Quantisation.F16, "bfloat16"), ("qwen2", Quantisation.Q8_0, "float32")],
)  # fmt: skip
def test_llama_cpp_reads_the_live_model(
    stored_editor: StoredEditor, tmp_path: Path, family: str, quantisation: Quantisation, dtype: str
) -> None:
    pytest.importorskip("llama_cpp")
    editor = stored_editor(family, dtype)
    editor.apply(capital(), quiet)
    report = export(Gguf(quantisation), edited_model(editor), tmp_path / "out" / "edited", QUESTIONS, quiet)
    assert report.reader.startswith("llama.cpp")
    path = report.path / f"edited-{quantisation.name}.gguf"
    assert sorted(report.path.iterdir()) == [report.path / "README.md", path]
    file = GGUFReader(path)
    assert file.fields["general.architecture"].contents() == family
    assert file.fields["tokenizer.chat_template"].contents() == editor.loaded.tokenizer.chat_template
    tensors = {tensor.name: tensor for tensor in file.tensors}
    down = tensors["blk.0.ffn_down.weight"]  # its rows have 48 numbers, which are no whole blocks
    assert down.tensor_type == GGMLQuantizationType.F16
    live = editor.loaded.arch.down_projection(0).weight.float()
    torch.testing.assert_close(torch.from_numpy(down.data.copy()).float(), live, rtol=1e-3, atol=1e-5)
    up = tensors["blk.0.ffn_up.weight"]
    assert up.tensor_type == quantisation.value[0]
    stored = torch.from_numpy(dequantize(up.data, up.tensor_type))
    wanted = editor.loaded.arch.layers[0].mlp.up_proj.weight.float()
    torch.testing.assert_close(stored, wanted, rtol=1e-2, atol=float(wanted.abs().max()) / 127)


def test_without_llama_cpp_transformers_reads_it_and_that_is_said(
    stored_editor: StoredEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    editor = stored_editor()
    editor.apply(capital(), quiet)
    report = export(Gguf(Quantisation.F16), edited_model(editor), tmp_path / "edited", QUESTIONS, quiet)
    assert "llama-cpp-python is not installed" in report.reader


def test_a_file_with_other_weights_is_refused(
    stored_editor: StoredEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp")
    monkeypatch.setattr(gguf_tensors, "_laid_out", lambda key, tensor, config: tensor)  # queries and keys as they are
    with pytest.raises(ExportError, match="too differently"):
        export(Gguf(Quantisation.F16), edited_model(stored_editor()), tmp_path / "out" / "bad", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_other_families_are_sent_to_the_converter(stored_editor: StoredEditor, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'gpt2'.*convert_hf_to_gguf\.py"):
        export(Gguf(Quantisation.F16), edited_model(stored_editor("gpt2")), tmp_path / "out" / "a", QUESTIONS, quiet)
    assert not (tmp_path / "out").exists()


def test_a_number_that_is_too_large_is_told() -> None:
    with pytest.raises(ExportError, match="too large"):
        Planned("big", torch.full((2, 32), 1e6), GGMLQuantizationType.F16).data()


def test_tensors_without_a_name_are_told(stored_editor: StoredEditor) -> None:
    model = stored_editor().loaded.model
    model.model.layers[0].extra = torch.nn.Linear(2, 2)
    with pytest.raises(ExportError, match="no place"):
        gguf_tensors.plan(model, GGMLQuantizationType.F16)


def test_tied_embeddings_are_written_once() -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        tie_word_embeddings=True,
    )  # fmt: skip
    names = [tensor.name for tensor in gguf_tensors.plan(AutoModelForCausalLM.from_config(config), _F16)]
    assert "token_embd.weight" in names
    assert "output.weight" not in names


_F16 = GGMLQuantizationType.F16
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def test_llama_3_divides_the_frequencies_as_transformers_does() -> None:
    config = LlamaConfig(hidden_size=512, num_attention_heads=8, rope_parameters=LLAMA3)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** -(torch.arange(0, 64, 2) / 64)
    factors = rope_factors(config)
    assert factors is not None
    torch.testing.assert_close(plain / factors, scaled)
    config.rope_parameters = {"rope_type": "yarn", "rope_theta": 10000.0}
    with pytest.raises(ExportError, match="yarn"):
        rope_factors(config)


def split(first: list[Any], use_regex: bool) -> Any:
    tokenizer = tiny_tokenizer()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, byte_level])
    return tokenizer


def test_ways_of_splitting_text_are_told_apart() -> None:
    assert splitter(tiny_tokenizer()) == "gpt-2"
    assert splitter(split([pre_tokenizers.Digits(individual_digits=True)], True)) == "smollm"
    qwen = split([pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")], False)
    qwen.backend_tokenizer.normalizer = normalizers.NFC()
    assert splitter(qwen) == "qwen2"
    for unknown in (
        split([pre_tokenizers.Digits(individual_digits=False)], True),
        split([pre_tokenizers.Split(Regex(r"\s+"), "isolated")], False),
        split([pre_tokenizers.Punctuation()], True),
    ):
        with pytest.raises(ExportError, match="tokenizer"):
            splitter(unknown)
    lower = tiny_tokenizer()
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(ExportError, match="tokenizer"):
        splitter(lower)
