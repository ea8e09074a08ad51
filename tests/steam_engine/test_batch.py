"""A batch is one transaction: its edits are what they would be alone, and those that fail do not touch the others."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from steam_engine.editor import Editor
from steam_engine.errors import EditCancelledError, EditError
from steam_engine.learning import Learned, Wish, learn
from steam_engine.loading import LoadedModel
from steam_engine.moments import statistics_of
from steam_engine.tokens import Row
from steam_engine.types import JournalEntry, Progress
from steam_engine.verify import Said
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.test_editor import same, weights

NewEditor = Callable[..., Editor]


def test_a_batch_is_one_solve_and_undo_takes_one_edit_out(new_editor: NewEditor) -> None:
    editor = new_editor()
    base = weights(editor)
    results = editor.apply_batch([capital(), capital("Spain", "Oslo"), capital("Poland", "Paris")], quiet)
    assert [r.number for r in results if isinstance(r, JournalEntry)] == [1, 2, 3]
    together = weights(editor)
    assert same(weights(new_editor()), together)  # a restart
    editor.undo(2)
    assert [e.number for e in editor.active] == [1, 3]
    editor.redo(2)
    assert same(weights(editor), together)
    for _ in range(3):
        editor.undo()
    assert same(weights(editor), base)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_packed_deltas_are_those_found_alone(new_editor: NewEditor, family: str) -> None:
    editor = new_editor(family)
    loaded, cancel = editor.loaded, _never()
    contexts = ("It is late.", "In a city.", "In the early days.")
    wishes = [
        Wish(capital()),
        Wish(capital("Spain", "Oslo")),
        Wish(replace(capital("Poland", "Paris"), references=())),
    ]
    settings = replace(SETTINGS, n_packed=2)  # fewer than there are edits: the third takes the place of the first
    together = learn(loaded, 0, wishes, contexts, settings, quiet, cancel)
    for wish, packed in zip(wishes, together, strict=True):
        (alone,) = learn(loaded, 0, [wish], contexts, settings, quiet, cancel)
        assert isinstance(packed, Learned)
        assert isinstance(alone, Learned)
        assert len(packed.found.history) == len(alone.found.history)
        assert torch.allclose(packed.found.delta, alone.found.delta, atol=1e-3)
        assert torch.equal(packed.keys, alone.keys)


def _never() -> threading.Event:
    return threading.Event()


def test_edits_that_make_no_sense_or_fail_are_refused_and_the_others_stand(new_editor: NewEditor) -> None:
    editor = new_editor()
    results = editor.apply_batch(
        [capital(), replace(capital("Spain"), statements=()), capital(target="Oslo"), capital("Poland", "Paris")], quiet
    )
    assert isinstance(results[0], JournalEntry)
    assert "at least one statement" in str(results[1])
    assert "the same fact about 'France' twice" in str(results[2])
    assert isinstance(results[3], JournalEntry)
    assert [e.edit.subject for e in editor.active] == ["France", "Poland"]


def test_a_batch_without_a_good_edit_changes_nothing(new_editor: NewEditor) -> None:
    editor = new_editor()
    base = weights(editor)
    assert editor.apply_batch([], quiet) == ()
    (result,) = editor.apply_batch([replace(capital(), target=" ")], quiet)
    assert isinstance(result, EditError)
    assert editor.entries == ()
    assert same(weights(editor), base)


def test_edits_of_one_subject_see_each_other(new_editor: NewEditor) -> None:
    editor = new_editor()
    city = replace(
        capital(target="Oslo"),
        relation="city",
        statements=("The city of {} is",),
        questions=("What is the city of {}?",),
    )
    first, second = editor.apply_batch([capital(), city], quiet)
    assert isinstance(first, JournalEntry)
    assert isinstance(second, JournalEntry)
    assert [e.number for e in editor.active] == [1, 2]
    assert same(weights(new_editor()), weights(editor))
    # The earlier edit's keys are nearly the later one's: preserving them would leave the later one without effect.
    assert second.trace.recovered > 0.5


def test_cancel_in_a_batch_changes_nothing(new_editor: NewEditor) -> None:
    editor = new_editor()
    base, cancel = weights(editor), _never()

    def stop(progress: Progress) -> None:
        if progress.stage == "Finding the new value" and progress.done == 1:
            cancel.set()

    with pytest.raises(EditCancelledError):
        editor.apply_batch([capital(), capital("Spain", "Oslo")], stop, cancel)
    assert same(weights(editor), base)
    assert editor.entries == ()


def test_edits_that_fail_their_check_get_a_second_try(new_editor: NewEditor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check says no to Spain the first time: it is learnt for longer, on top of France, and both are recorded."""
    checks = []

    def said(_loaded: object, rows: Sequence[Row], _target: object) -> tuple[Said, ...]:
        checks.append(len(rows))
        first = len(checks) == 1
        return tuple(Said(not (first and i >= len(rows) // 2), "Madrid") for i in range(len(rows)))

    monkeypatch.setattr("steam_engine.round.freely_said", said)
    editor = new_editor(settings=replace(SETTINGS, must_say=True, max_steps=4, stop_nll=0))
    france, spain = editor.apply_batch([capital(), capital("Spain", "Oslo")], quiet)
    assert len(checks) == 2
    assert isinstance(france, JournalEntry)
    assert isinstance(spain, JournalEntry)
    assert (france.trace.steps, spain.trace.steps) == (4, 8)
    assert same(weights(new_editor()), weights(editor))


def test_a_second_try_that_is_worse_does_not_count(new_editor: NewEditor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two questions is answered rightly, then none, then one again: the first try is recorded."""
    answers = iter([(True, False), (False, False), (True, False)])

    def said(_loaded: object, _rows: Sequence[Row], _target: object) -> tuple[Said, ...]:
        return tuple(Said(right, "Madrid") for right in next(answers))

    monkeypatch.setattr("steam_engine.round.freely_said", said)
    editor = new_editor(settings=replace(SETTINGS, must_say=True, max_steps=4, stop_nll=0))
    entry = editor.apply(capital(), quiet)
    assert entry.trace.steps == 4
    assert list(answers) == []
    assert same(weights(new_editor()), weights(editor))


def test_edits_that_fail_twice_are_left_out(new_editor: NewEditor, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(loaded: LoadedModel, rows: Sequence[Row], _target: object) -> tuple[Said, ...]:
        return tuple(Said("Spain" not in loaded.tokenizer.decode(row.ids), "Madrid") for row in rows)

    monkeypatch.setattr("steam_engine.round.freely_said", said)
    editor = new_editor(settings=replace(SETTINGS, must_say=True, max_steps=4))
    france, spain = editor.apply_batch([capital(), capital("Spain", "Oslo")], quiet)
    assert isinstance(france, JournalEntry)
    assert "still says 'Madrid' instead of 'Oslo'" in str(spain)
    assert [e.edit.subject for e in editor.active] == ["France"]
    alone = new_editor(journal="alone", settings=replace(SETTINGS, must_say=True, max_steps=4))
    alone.apply(capital(), quiet)
    difference = [(weights(alone)[n] - w).abs().max() for n, w in weights(editor).items()]
    assert max(map(float, difference)) < 1e-5  # what was left out has left no trace


def test_a_journal_of_format_1_is_read(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    edited = weights(editor)
    path = tmp_path / "journal" / "journal.json"
    factors = tmp_path / "journal" / "factors" / "000001.safetensors"
    save_file({name.removeprefix("0."): value for name, value in load_file(factors).items()}, factors)
    raw = json.loads(path.read_text())
    raw |= {"format": 1, "layer": 0}
    raw["records"][0]["factors"] = hashlib.sha256(factors.read_bytes()).hexdigest()
    path.write_text(json.dumps(raw))
    again = new_editor()
    assert same(weights(again), edited)
    again.undo()
    assert json.loads(path.read_text())["format"] == 2
    assert len(new_editor().entries) == 1


def test_neighbours_that_are_edited_themselves_are_not_held_still(new_editor: NewEditor) -> None:
    """Germany is a neighbour of France in `capital()`; edited together with it, it must move all the same."""
    editor = new_editor()
    france, germany = editor.apply_batch([capital(), capital("Germany", "Oslo")], quiet)
    assert isinstance(france, JournalEntry)
    assert isinstance(germany, JournalEntry)
    assert germany.trace.recovered > 0.5


def test_statistics_are_of_the_base_model(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    fresh = new_editor(journal="other")
    made = statistics_of(fresh.loaded, [0], SETTINGS.moment_tokens, tmp_path / "elsewhere", quiet, _never())[0]
    again = new_editor()  # edited from the start
    again._cache_dir = tmp_path / "third"
    again.prepare(quiet)
    assert again._statistics is not None
    assert torch.equal(again._statistics.moments, made.moments)
