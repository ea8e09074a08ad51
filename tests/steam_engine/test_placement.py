"""A model that accelerate has spread is edited as any other, also where its weights are empty between runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from accelerate.hooks import AlignDevicesHook

from steam_engine.architecture import Architecture
from steam_engine.editor import Editor
from steam_engine.fingerprint import model_fingerprint
from steam_engine.generating import generate
from steam_engine.loading import LoadedModel, load_model
from steam_engine.locate import causal_trace
from steam_engine.placement import input_device, named_weights, weight_of
from steam_engine.settings import EditSettings
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.tiny import tiny_model

TOP = {"llama": ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head", "model.layers"),
       "gpt2": ("transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head", "transformer.h")}  # fmt: skip
PROMPTS = ([5, 6, 7, 8], [9, 10, 11])


def placed(family: str, layers: list[str]) -> dict[str, str]:
    """A device map: each layer's place; everything else in memory."""
    *others, stack = TOP[family]
    return dict.fromkeys(others, "cpu") | {f"{stack}.{i}": where for i, where in enumerate(layers)}


def spread(family: str, folder: Path, layers: list[str], **how: Any) -> LoadedModel:
    """As accelerate leaves it, with a hook at every part."""
    plain = tiny_model(family)
    model = dispatch_model(
        plain.model, device_map=placed(family, layers), offload_dir=str(folder), force_hooks=True, **how
    )
    return replace(plain, model=model, arch=Architecture(model), is_spread=True)


@pytest.mark.parametrize("family", sorted(TOP))
@pytest.mark.parametrize(
    "layers",
    [["cpu"] * 5, ["cpu", "cpu", "disk", "disk", "cpu"], ["disk"] * 5],
    ids=["hooks alone", "upper layers on the disk", "all layers on the disk"],
)
def test_an_edit_of_a_spread_model(family: str, layers: list[str], tmp_path: Path, moments_cache: Path) -> None:
    loaded, plain = spread(family, tmp_path / "disk", layers), tiny_model(family)
    assert isinstance(loaded.arch.layers[1]._hf_hook, AlignDevicesHook)
    assert loaded.arch.down_projection(2).weight.is_meta == (layers[2] == "disk")
    assert input_device(loaded.model) == loaded.arch.device_of(2) == torch.device("cpu")
    assert model_fingerprint(loaded.model, loaded.tokenizer) == plain.fingerprint
    base = generate(loaded, PROMPTS, 6)
    assert base == generate(plain, PROMPTS, 6)

    editor = Editor(loaded, tmp_path / "journal", moments_cache, SETTINGS)
    same = Editor(plain, tmp_path / "plain", moments_cache, SETTINGS)
    entry, expected = editor.apply(capital(), quiet), same.apply(capital(), quiet)
    assert entry.trace.losses == pytest.approx(expected.trace.losses, rel=1e-3)
    edited = {name: weight.clone() for name, weight in named_weights(loaded.model)}
    original = dict(tiny_model(family).model.named_parameters())
    changed = [name for name, weight in edited.items() if not torch.equal(weight, original[name])]
    assert len(changed) == 1
    assert edited.keys() == original.keys()
    for name, weight in plain.model.named_parameters():
        assert torch.allclose(edited[name], weight, atol=1e-4)
    assert generate(loaded, PROMPTS, 6) == generate(plain, PROMPTS, 6)  # what runs is what was stored

    editor.undo()
    for name, weight in named_weights(loaded.model):
        assert torch.equal(weight, original[name])
    assert generate(loaded, PROMPTS, 6) == base
    again = spread(family, tmp_path / "again", layers)
    editor.redo()
    Editor(again, tmp_path / "journal", moments_cache, SETTINGS)
    for name, weight in named_weights(again.model):
        assert torch.equal(weight, edited[name])


def test_tracing_a_spread_model(tmp_path: Path) -> None:
    there = causal_trace(spread("llama", tmp_path, ["disk"] * 5), "The capital of {} is", "France")
    here = causal_trace(tiny_model("llama"), "The capital of {} is", "France")
    assert torch.allclose(there.restored, here.restored, atol=1e-5)


def test_loading_spread(tmp_path: Path, moments_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_model("llama")
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    loaded = load_model(str(tmp_path / "model"), "spread")
    assert loaded.device_name == "spread"
    assert loaded.fingerprint == tiny.fingerprint
    monkeypatch.setattr("steam_engine.loading.SPREAD", placed("llama", ["cpu", "disk", "disk", "cpu", "cpu"]))
    loaded = load_model(str(tmp_path / "model"), "spread")
    assert weight_of(loaded.arch.down_projection(1)).shape == (32, 48)
    assert loaded.arch.down_projection(1).weight.is_meta
    assert loaded.fingerprint == tiny.fingerprint
    editor = Editor(loaded, tmp_path / "journal", moments_cache, replace(SETTINGS, layer=1))
    before = weight_of(loaded.arch.down_projection(1)).clone()
    editor.apply(capital(), quiet)
    assert not torch.equal(weight_of(loaded.arch.down_projection(1)), before)
    loaded.model.save_pretrained(tmp_path / "edited")  # a checkpoint holds the edit
    loaded.tokenizer.save_pretrained(tmp_path / "edited")
    edited = load_model(str(tmp_path / "edited"), "cpu")
    assert torch.equal(edited.arch.down_projection(1).weight, weight_of(loaded.arch.down_projection(1)))
    editor.undo()
    assert torch.equal(weight_of(loaded.arch.down_projection(1)), before)


@pytest.mark.parametrize("null_space", [0.0, 0.5])
def test_solves_in_single_precision(null_space: float, tmp_path: Path, moments_cache: Path) -> None:
    changes = []
    for precision in ("float64", "float32"):
        settings: EditSettings = replace(SETTINGS, solve_precision=precision, null_space=null_space)
        loaded = tiny_model("llama")
        base = loaded.arch.down_projection(0).weight.clone()
        Editor(loaded, tmp_path / precision, moments_cache, settings).apply(capital(), quiet)
        changes.append(loaded.arch.down_projection(0).weight - base)
    double, single = changes
    assert 0 < (single - double).norm() / double.norm() < 0.02
