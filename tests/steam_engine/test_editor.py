"""An edit is a transaction on weights and journal; undo is exact; a restart changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from steam_engine.errors import EditCancelledError, EditError, JournalError, NothingToUndoError
from steam_engine.types import FactEdit, Progress
from tests.disk import file_limit, unusable
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model

NewEditor = Callable[..., Editor]


def weights(editor: Editor) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in editor.loaded.model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_edit_then_undo_is_bit_identical(new_editor: NewEditor, family: str) -> None:
    editor = new_editor(family)
    base = weights(editor)
    entry = editor.apply(capital(), quiet)
    edited = weights(editor)
    changed = [name for name in base if not torch.equal(base[name], edited[name])]
    assert len(changed) == 1
    assert entry.state == "active"
    assert entry.trace.steps == len(entry.trace.losses)
    assert entry.trace.losses[-1] < entry.trace.losses[0]
    difference = (edited[changed[0]] - base[changed[0]]).double()
    singular = torch.linalg.svdvals(difference)
    assert singular[1] < 1e-4 * singular[0]  # rank one, up to rounding of the sum
    editor.undo()
    assert same(weights(editor), base)
    editor.redo()
    assert same(weights(editor), edited)


def test_restart_replays_the_same_weights(new_editor: NewEditor) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    editor.apply(capital("Spain", "Oslo"), quiet)
    editor.undo(1)
    again = new_editor()
    assert same(weights(again), weights(editor))
    assert again.entries == editor.entries


def test_the_edit_of_an_edited_fact_replaces_it_and_undo_brings_it_back(new_editor: NewEditor) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    first = weights(editor)
    second = editor.apply(capital(target="Berlin"), quiet)
    assert second.replaces == (1,)
    assert [e.state for e in editor.entries] == ["replaced", "active"]
    editor.undo()
    assert [e.state for e in editor.entries] == ["active", "undone"]
    assert same(weights(editor), first)
    editor.redo()
    assert [e.state for e in editor.entries] == ["replaced", "active"]


def test_redo_takes_the_edit_undone_last(new_editor: NewEditor) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    editor.apply(capital("Spain", "Oslo"), quiet)
    assert editor.undo().number == 2
    assert editor.undo().number == 1
    assert editor.redo().number == 1
    assert editor.redo().number == 2
    with pytest.raises(NothingToUndoError, match="no edit to redo"):
        editor.redo()


def test_undo_of_what_is_not_there(new_editor: NewEditor) -> None:
    editor = new_editor()
    with pytest.raises(NothingToUndoError, match="no edit to undo"):
        editor.undo()
    editor.apply(capital(), quiet)
    with pytest.raises(NothingToUndoError, match="no edit 7"):
        editor.undo(7)
    editor.undo(1)
    with pytest.raises(NothingToUndoError, match="is undone"):
        editor.undo(1)


def test_journal_of_another_base_model_is_refused(new_editor: NewEditor) -> None:
    new_editor("llama").apply(capital(), quiet)
    with pytest.raises(JournalError, match=r"another base model \(tiny-llama.*not on tiny-qwen3.*--workspace"):
        new_editor("qwen3")


@pytest.mark.parametrize("damage", ["truncate", "extra", "factors", "gone"])
def test_damaged_journal_is_refused_and_left_alone(new_editor: NewEditor, tmp_path: Path, damage: str) -> None:
    new_editor().apply(capital(), quiet)
    path = tmp_path / "journal" / "journal.json"
    factors = tmp_path / "journal" / "factors" / "000001.safetensors"
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "extra":
        path.write_text(json.dumps({**json.loads(path.read_text()), "surprise": 1}))
    elif damage == "factors":
        data = bytearray(factors.read_bytes())
        data[-1] ^= 1
        factors.write_bytes(data)
    else:
        factors.unlink()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="--workspace"):
        new_editor()
    assert path.read_bytes() == before


def test_cancel_at_any_step_changes_nothing(new_editor: NewEditor) -> None:
    editor = new_editor()
    editor.apply(capital("Spain", "Oslo"), quiet)
    before, entries = weights(editor), editor.entries
    for stage in ("Reading the subject", "Looking for semantic anchors", "Finding the new value"):
        cancel = threading.Event()

        def stop(progress: Progress, stage: str = stage, cancel: threading.Event = cancel) -> None:
            if progress.stage == stage:
                cancel.set()

        with pytest.raises(EditCancelledError):
            editor.apply(capital(), stop, cancel)
        assert same(weights(editor), before)
        assert editor.entries == entries


def test_an_exception_in_the_middle_changes_nothing(new_editor: NewEditor) -> None:
    editor = new_editor()
    before = weights(editor)

    def explode(progress: Progress) -> None:
        if progress.stage == "Recording the edit":
            raise RuntimeError("the page went away")

    with pytest.raises(RuntimeError):
        editor.apply(capital(), explode)
    assert same(weights(editor), before)
    assert editor.entries == ()
    assert same(weights(new_editor()), before)


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("limit", [0, 3000], ids=["nothing", "the factors alone"])
def test_a_full_disk_changes_nothing(new_editor: NewEditor, tmp_path: Path, limit: int) -> None:
    editor = new_editor()
    editor.apply(capital("Spain", "Oslo"), quiet)
    before, entries, kept = weights(editor), editor.entries, files(tmp_path / "journal")
    assert (tmp_path / "journal" / "factors" / "000001.safetensors").stat().st_size < 3000
    assert (tmp_path / "journal" / "journal.json").stat().st_size > 1500  # with a second edit it is over 3000
    with file_limit(limit), pytest.raises(JournalError, match=r"nothing has changed\. Free some space"):
        editor.apply_batch([capital(), capital("Poland", "Rome")], quiet)
    assert same(weights(editor), before)
    assert editor.entries == entries
    assert files(tmp_path / "journal") == kept
    editor.apply(capital(), quiet)
    assert len(new_editor().active) == 2


@pytest.mark.parametrize("part", ["journal", "journal/factors"])
def test_a_journal_that_cannot_be_written_changes_nothing(new_editor: NewEditor, tmp_path: Path, part: str) -> None:
    editor = new_editor()
    editor.apply(capital("Spain", "Oslo"), quiet)
    before, entries, kept = weights(editor), editor.entries, files(tmp_path / "journal")
    with unusable(tmp_path / part), pytest.raises(JournalError, match=r"could not be written.*--workspace"):
        editor.apply(capital(), quiet)
    assert same(weights(editor), before)
    if part == "journal":
        with unusable(tmp_path / part), pytest.raises(JournalError, match=r"could not be written.*--workspace"):
            editor.undo()
        assert same(weights(editor), before)
    assert editor.entries == entries
    assert files(tmp_path / "journal") == kept


def test_a_journal_that_cannot_be_made_is_refused(new_editor: NewEditor, tmp_path: Path) -> None:
    new_editor()
    with unusable(tmp_path / "journal"), pytest.raises(JournalError, match=r"cannot be kept in .*--workspace"):
        new_editor()


def test_an_edit_beyond_the_norm_budget_is_refused(new_editor: NewEditor) -> None:
    editor = new_editor(settings=replace(SETTINGS, max_drift=1e-6))
    before = weights(editor)
    with pytest.raises(EditError, match="norm"):
        editor.apply(capital(), quiet)
    assert same(weights(editor), before)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (replace(capital(), subject=" "), "needs a subject"),
        (replace(capital(), target=""), "needs a subject"),
        (replace(capital(), statements=()), "at least one statement"),
        (replace(capital(), questions=("What is it?",)), "exactly once"),
    ],
)
def test_an_incomplete_wish_is_refused(new_editor: NewEditor, edit: FactEdit, message: str) -> None:
    with pytest.raises(EditError, match=message):
        new_editor().apply(edit, quiet)


def test_reference_the_model_does_not_know_is_dropped_with_the_reason(new_editor: NewEditor) -> None:
    trace = new_editor().apply(capital(), quiet).trace
    assert trace.anchor_kind == "reference"
    assert trace.anchors == ("Italy",)
    assert trace.dropped_anchors == (("Poland", "the model says 'Warsaw', not 'Rome'"),)


def test_without_known_references_the_anchor_is_in_context(new_editor: NewEditor) -> None:
    trace = new_editor().apply(replace(capital(), references=()), quiet).trace
    assert trace.anchor_kind == "in-context"
    assert trace.anchors == ("France",)


def test_an_edit_that_the_model_does_not_say_is_refused(new_editor: NewEditor) -> None:
    editor = new_editor(settings=replace(SETTINGS, must_say=True, max_steps=1, retries=0))
    before = weights(editor)
    with pytest.raises(EditError, match=r"still says '.*' instead of 'late' after 1 steps; nothing has changed"):
        editor.apply(capital(target="late"), quiet)
    assert same(weights(editor), before)
    assert editor.entries == ()


def test_layers_out_of_range_are_refused(new_editor: NewEditor) -> None:
    with pytest.raises(EditError, match="layers 0 to 3"):
        new_editor(settings=replace(SETTINGS, layer=4))


def test_without_a_place_for_statistics_edits_still_work(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    editor = Editor(taught_model("llama"), tmp_path / "journal", tmp_path / "cache", SETTINGS)
    editor.apply(capital(), quiet)
    assert len(editor.active) == 1
