"""Edits in bfloat16 on a GPU: the undone weights are the old ones to the bit, and what an edit costs is printed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from steam_engine.errors import AmendError
from steam_engine.generating import generate
from steam_engine.loading import LoadedModel, load_model
from steam_engine.settings import EditSettings
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.tiny import tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def edit_and_undo(loaded: LoadedModel, tmp_path: Path, settings: EditSettings) -> None:
    assert loaded.device.type == "cuda"
    assert loaded.dtype == torch.bfloat16
    base = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    editor = Editor(loaded, tmp_path / "journal", tmp_path / "cache", settings)
    editor.prepare(quiet)
    torch.cuda.synchronize()
    started = time.perf_counter()
    trace = editor.apply(capital(), quiet).trace
    torch.cuda.synchronize()
    print(f"{loaded.name}: {time.perf_counter() - started:.2f} s an edit, {trace.steps} steps")
    changed = [name for name, weight in loaded.model.state_dict().items() if not torch.equal(weight, base[name])]
    assert len(changed) == 1
    assert trace.losses[-1] < trace.losses[0]
    editor.undo()
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, base[name]), name


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("where", ["cuda", "spread"])
def test_a_tiny_model(family: str, where: str, tmp_path: Path) -> None:
    tiny = tiny_model(family)
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    loaded = load_model(str(tmp_path / "model"), where, "bfloat16")
    edit_and_undo(loaded, tmp_path, SETTINGS)


def test_layers_that_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that do not fit on the GPU lie in memory, and are brought there for each run."""
    tiny = tiny_model("llama")
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    parts = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head")
    layers = {f"model.layers.{i}": "cpu" if i in (0, 3) else 0 for i in range(5)}
    monkeypatch.setattr("steam_engine.loading.SPREAD", dict.fromkeys(parts, 0) | layers)
    loaded = load_model(str(tmp_path / "model"), "spread", "bfloat16")
    assert loaded.arch.down_projection(0).weight.is_meta
    before = generate(loaded, [[5, 6, 7, 8]], 6)
    editor = Editor(loaded, tmp_path / "journal", tmp_path / "cache", SETTINGS)
    trace = editor.apply(capital(), quiet).trace
    assert trace.losses[-1] < trace.losses[0]
    editor.undo()
    assert generate(loaded, [[5, 6, 7, 8]], 6) == before


@pytest.mark.model
def test_the_default_model(tmp_path: Path) -> None:
    try:
        loaded = load_model(device="cuda", dtype="bfloat16")
    except AmendError as problem:
        pytest.skip(f"the default model is not there: {problem}")
    edit_and_undo(loaded, tmp_path, EditSettings())
