"""What the plots show: cosines by layer, a plane, and causal traces, against plain computations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from steam_engine.errors import EditCancelledError, EditError, NothingToUndoError
from steam_engine.insight import Streams, compare_streams
from steam_engine.loading import LoadedModel
from steam_engine.locate import causal_trace, find_layer
from steam_engine.types import Progress
from tests.steam_engine.conftest import capital, quiet, taught_model
from tests.steam_engine.test_editor import same, weights
from tests.steam_engine.tiny import FAMILIES, tiny_model

NewEditor = Callable[..., Editor]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_an_edit_moves_the_stream_from_its_layer_on(new_editor: NewEditor, family: str) -> None:
    editor = new_editor(family)
    editor.apply(capital("Spain", "Oslo"), quiet)
    editor.apply(capital(), quiet)
    edited = weights(editor)
    seen = editor.insight(2)
    assert same(weights(editor), edited)
    assert seen.layers == tuple(range(editor.loaded.arch.n_layers))
    assert all(c < 0.9999 for c in seen.old_after)  # these models are edited in layer 0
    kinds = [p.kind for p in seen.points]
    assert kinds[:2] == ["before", "after"]
    assert kinds.count("neighbour") == 3
    assert 0.3 < seen.explained <= 1
    if "anchor" in kinds:
        assert {p.name for p in seen.points if p.kind == "anchor"} <= {"Italy", "Poland"}
        assert seen.anchor_before is not None
        assert len(seen.anchor_before) == len(seen.layers)
    else:
        assert seen.anchor_before is None


def test_layers_below_the_edit_do_not_move(new_editor: NewEditor) -> None:
    from dataclasses import replace

    from tests.steam_engine.conftest import SETTINGS

    editor = new_editor(settings=replace(SETTINGS, layer=2))
    editor.apply(capital(), quiet)
    seen = editor.insight(1)
    assert seen.old_after[:2] == pytest.approx((1, 1), abs=1e-5)
    assert seen.old_after[2] < 0.9999


def test_insight_into_what_is_not_there(new_editor: NewEditor) -> None:
    editor = new_editor()
    with pytest.raises(NothingToUndoError, match="There is no edit 1"):
        editor.insight(1)
    editor.apply(capital(), quiet)
    with pytest.raises(EditError, match=r"no layer 9: .* layers are 0 to 4"):
        editor.insight(1, 9)
    editor.undo()
    with pytest.raises(NothingToUndoError, match="is undone, so there is nothing to look into"):
        editor.insight(1)


def test_the_plane_keeps_distances_that_lie_in_it() -> None:
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(16, 2))[0].T
    flat = torch.randn(5, 2) @ basis  # five points in a plane of sixteen dimensions
    before = Streams(flat[0][None], {"Italy": flat[2][None], "Malta": flat[3][None]}, {"Spain": flat[4][None]})
    seen = compare_streams(before, Streams(flat[1][None], {}, {}), 0)
    places = torch.tensor([[p.x, p.y] for p in seen.points])
    assert torch.allclose(torch.cdist(places, places), torch.cdist(flat, flat), atol=1e-4)
    assert seen.explained == pytest.approx(1, abs=1e-6)
    mean = (flat[2] + flat[3]) / 2
    assert seen.anchor_after == pytest.approx((float(torch.cosine_similarity(flat[1], mean, dim=0)),), abs=1e-6)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return taught_model("llama")


def test_a_trace_is_between_corrupted_and_clean(loaded: LoadedModel) -> None:
    trace = causal_trace(loaded, "The capital of {} is", "France")
    n_tokens = len(trace.tokens)
    assert trace.restored.shape == (loaded.arch.n_layers, n_tokens)
    assert "".join(trace.tokens) == "The capital of France is"
    assert "France".endswith(trace.tokens[trace.subject[-1]].strip())
    assert trace.clean > trace.corrupted
    # Putting the last token's state back after the last layer gives the clean answer, whatever the noise.
    assert float(trace.restored[-1, -1]) == pytest.approx(trace.clean, abs=1e-4)
    # Tokens before the subject were never corrupted: nothing changes.
    assert trace.restored[:, 0].tolist() == pytest.approx([trace.corrupted] * loaded.arch.n_layers, abs=1e-4)
    again = causal_trace(loaded, "The capital of {} is", "France")
    assert torch.equal(again.restored, trace.restored)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_traces_on_every_family(family: str) -> None:
    model = tiny_model(family)
    for part in ("hidden", "mlp"):
        trace = causal_trace(model, "The capital of {} is", "France", part, window=2)  # type: ignore[arg-type]
        assert torch.isfinite(trace.restored).all()
    with torch.no_grad():  # nothing is left behind
        ids = torch.tensor([model.tokenizer("The capital of France is")["input_ids"]])
        probability = model.model(ids).logits[0, -1].softmax(-1).max()
    assert float(probability) == pytest.approx(trace.clean, abs=1e-4)


def test_the_layer_is_found_once(loaded: LoadedModel, tmp_path: Path) -> None:
    told: list[Progress] = []
    facts = (("The capital of {} is", "France"), ("The capital of {} is", "Spain"))
    layer = find_layer(loaded, tmp_path, told.append, threading.Event(), facts)
    assert 0 <= layer < loaded.arch.n_layers - 1
    assert [p.done for p in told] == [0, 1, 2]
    assert find_layer(loaded, tmp_path, told.append, threading.Event(), facts) == layer
    assert len(told) == 3
    (file,) = tmp_path.iterdir()
    file.write_text("{}")  # damaged: found again
    assert find_layer(loaded, tmp_path, told.append, threading.Event(), facts) == layer
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(EditCancelledError):
        find_layer(loaded, tmp_path / "other", quiet, stopped, facts)
