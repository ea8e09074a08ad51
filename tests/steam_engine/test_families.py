"""Every family takes a whole edit, gives it back to the bit, and finds it again after a restart."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from steam_engine.architecture import Architecture
from steam_engine.editor import Editor
from steam_engine.errors import EditCancelledError, EditError, UnsupportedModelError
from steam_engine.families import ARCHITECTURES
from steam_engine.loading import LoadedModel
from steam_engine.selftest import check_suffix
from steam_engine.settings import EditSettings
from steam_engine.types import Progress
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.tiny import FAMILIES, MISFITS, STRUCTURAL, tiny_model

ANY_LAYER = replace(SETTINGS, layer=None)


def state(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in loaded.model.state_dict().items()}


def different(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in a if not torch.equal(a[name], b[name])]


def edit_undo_reload(
    loaded: LoadedModel, again: LoadedModel, journal: Path, cache: Path, settings: EditSettings = SETTINGS
) -> int:
    """Returns the edited layer."""
    base = state(loaded)
    assert different(base, state(again)) == []
    editor = Editor(loaded, journal, cache, settings)
    trace = editor.apply(capital(), quiet).trace
    edited = state(loaded)
    assert len(different(base, edited)) == 1
    assert trace.losses[-1] < trace.losses[0]
    editor.undo()
    assert different(base, state(loaded)) == []
    editor.redo()
    assert different(edited, state(loaded)) == []
    Editor(again, journal, cache, settings)
    assert different(edited, state(again)) == []
    return trace.layer


def test_every_family_of_the_table_is_tried() -> None:
    assert {*FAMILIES, "gemma3"} == {*ARCHITECTURES}  # gemma3 sees: it is made and loaded in test_refusals


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_edit_undo_and_reload(family: str, tmp_path: Path, moments_cache: Path) -> None:
    edit_undo_reload(tiny_model(family), tiny_model(family), tmp_path, moments_cache)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision(family: str, dtype: torch.dtype, tmp_path: Path, moments_cache: Path) -> None:
    loaded, again = tiny_model(family, dtype=dtype), tiny_model(family, dtype=dtype)
    assert loaded.arch.dtype == loaded.dtype == dtype
    edit_undo_reload(loaded, again, tmp_path, moments_cache)


@pytest.mark.parametrize("family", ["gemma2", *STRUCTURAL])
def test_logits_are_the_models_own(family: str) -> None:
    """Gemma 2 caps them, Cohere and Granite scale them."""
    loaded = tiny_model(family)
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = loaded.model(input_ids=ids).logits
    assert (loaded.arch.logits(loaded.arch.base(input_ids=ids)[0]) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("family", sorted(STRUCTURAL))
def test_a_family_without_an_entry_works_too(family: str, tmp_path: Path) -> None:
    loaded, told = tiny_model(family), []
    assert family not in ARCHITECTURES
    assert not loaded.arch.is_known
    layer = edit_undo_reload(loaded, tiny_model(family), tmp_path / "journal", tmp_path / "cache", ANY_LAYER)
    assert (tmp_path / "cache" / f"layer-{loaded.fingerprint[:16]}.json").is_file()
    again = Editor(tiny_model(family), tmp_path / "other", tmp_path / "cache", ANY_LAYER)
    assert again.layer == layer
    again.prepare(lambda progress: told.append(progress.stage))
    assert told == ["Trying the engine on this kind of model"]  # everything else was kept


def test_the_search_for_the_layer_is_told_and_can_be_stopped(tmp_path: Path) -> None:
    stop, stages = threading.Event(), []

    def tell(progress: Progress) -> None:
        stages.append(progress.stage)
        if progress.done == 2:
            stop.set()

    loaded = tiny_model("stablelm")
    base = state(loaded)
    editor = Editor(loaded, tmp_path / "journal", tmp_path / "cache", ANY_LAYER)
    with pytest.raises(EditCancelledError, match="nothing has changed"):
        editor.apply(capital(), tell, stop)
    assert stages[0] == "Trying the engine on this kind of model"
    assert stages[-1] == "Looking for the layer that keeps facts (once)"
    assert not (tmp_path / "cache").exists()
    assert different(base, state(loaded)) == []
    assert editor.entries == ()


@pytest.mark.parametrize("family", sorted(MISFITS))
def test_a_family_that_the_engine_does_not_fit_is_refused(family: str, tmp_path: Path) -> None:
    loaded = tiny_model(family)  # it can be chatted with
    base = state(loaded)
    with pytest.raises(UnsupportedModelError, match=f"'{family}' cannot be edited: their upper layers"):
        Editor(loaded, tmp_path / "journal", tmp_path / "cache", ANY_LAYER).apply(capital(), quiet)
    assert different(base, state(loaded)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_self_test_tells_a_wrong_layout_from_rounding(dtype: torch.dtype) -> None:
    for family in ("llama", "gemma2", "gpt2", "cohere", "granite"):
        for layer in (0, 1, 3):
            check_suffix(tiny_model(family, dtype=dtype), layer)
    wrong = tiny_model("granite", dtype=dtype)
    wrong.arch.model.config.residual_multiplier = 1.0  # as if nobody knew of it
    wrong = replace(wrong, arch=Architecture(wrong.model))
    for layer in (0, 1, 3):
        with pytest.raises(UnsupportedModelError, match="cannot be edited"):
            check_suffix(wrong, layer)


def test_a_stack_of_other_layers_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="not a stack of alike layers with an MLP each"):
        tiny_model("mamba")


def test_a_layer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EditError, match="layers 0 to 3 can"):
        Editor(tiny_model("llama"), tmp_path, tmp_path, replace(SETTINGS, layer=4))


def test_too_few_layers_are_refused() -> None:
    model = copy.deepcopy(tiny_model("llama").model)
    model.model.layers = model.model.layers[:2]
    with pytest.raises(UnsupportedModelError, match=r"2 layers.*at least 3"):
        Architecture(model)
