"""An exported journal becomes edits again: bit for bit on its own base, anew on another one, never halfway."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from steam_engine.errors import ImportConflictError, JournalError
from steam_engine.exports.journal_file import written
from steam_engine.exports.model import edited_model
from steam_engine.importing import Imported, import_journal
from steam_engine.loading import load_model
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.exports.conftest import stored_models  # noqa: F401  # a fixture

NewEditor = Callable[..., Editor]


@pytest.fixture
def new_editor(stored_models: Callable[[str], Path], moments_cache: Path, tmp_path: Path) -> NewEditor:  # noqa: F811
    def make(name: str, family: str = "gpt2", dtype: str = "float32") -> Editor:
        loaded = load_model(str(stored_models(family)), device="cpu", dtype=dtype)
        return Editor(loaded, tmp_path / name, moments_cache, SETTINGS)

    return make


@pytest.fixture
def exported(new_editor: NewEditor, tmp_path: Path) -> tuple[Editor, Path]:
    """An editor with two edits, and its journal in a file."""
    editor = new_editor("first")
    editor.apply(capital(), quiet)
    editor.apply(capital("Norway", "Vienna"), quiet)
    path = tmp_path / "journal.json"
    path.write_text(written(edited_model(editor)).model_dump_json())
    return editor, path


def live(editor: Editor) -> torch.Tensor:
    return editor.loaded.arch.down_projection(editor.layer).weight.clone()


def taken_in(editor: Editor, path: Path, replace: bool = False) -> Imported:
    return import_journal(editor, path, replace, quiet, threading.Event())


def test_on_the_same_base_the_weights_are_the_same_bits(exported: tuple[Editor, Path], new_editor: NewEditor) -> None:
    editor, path = exported
    other = new_editor("second")
    base = live(other)
    found = taken_in(other, path)
    assert found.made_anew is None
    assert found.refused == ()
    assert [entry.edit for entry in other.active] == [entry.edit for entry in editor.active]
    assert [entry.trace for entry in other.active] == [entry.trace for entry in editor.active]
    assert torch.equal(live(other), live(editor))
    assert torch.equal(live(new_editor("second")), live(editor))  # replayed at the next start
    other.apply(capital("Spain", "Oslo"), quiet)  # the imported keys are kept in place like any
    for _ in range(3):
        other.undo()
    assert torch.equal(live(other), base)


def test_edits_of_the_same_facts_are_only_replaced_when_asked(
    exported: tuple[Editor, Path], new_editor: NewEditor
) -> None:
    other = new_editor("second")
    own = other.apply(capital(target="Athens"), quiet)
    before = live(other)
    with pytest.raises(ImportConflictError, match=r"1 \(The capital of France is Athens\).*--replace"):
        taken_in(other, exported[1])
    assert other.active == (own,)
    assert torch.equal(live(other), before)
    taken_in(other, exported[1], replace=True)
    assert [entry.edit.target for entry in other.active] == ["Rome", "Vienna"]
    assert torch.equal(live(other), live(exported[0]))


@pytest.mark.parametrize(("family", "dtype"), [("llama", "float32"), ("gpt2", "bfloat16")])
def test_on_another_base_the_edits_are_made_anew(
    exported: tuple[Editor, Path], new_editor: NewEditor, family: str, dtype: str
) -> None:
    other = new_editor("second", family, dtype)
    before = live(other)
    found = taken_in(other, exported[1])
    assert found.made_anew is not None
    assert "they were made on" in found.made_anew
    assert len(found.entries) + len(found.refused) == 2
    assert found.entries
    assert not torch.equal(live(other), before)


def test_a_file_of_an_earlier_version_is_made_anew(exported: tuple[Editor, Path], new_editor: NewEditor) -> None:
    raw = json.loads(exported[1].read_text())
    raw["version"] = 1
    for edit in raw["edits"]:
        del edit["trace"]
        for part in edit["factors"]:
            del part["keys"]
    exported[1].write_text(json.dumps(raw))
    found = taken_in(new_editor("second"), exported[1])
    assert found.made_anew is not None
    assert "an earlier version" in found.made_anew
    assert len(found.entries) == 2


def without_an_edit(raw: dict[str, list[dict[str, object]]]) -> None:
    raw["edits"].clear()


def one_edit_less(raw: dict[str, list[dict[str, object]]]) -> None:
    raw["edits"].pop()


def twice(raw: dict[str, list[dict[str, object]]]) -> None:
    raw["edits"].append(raw["edits"][0])


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [(without_an_edit, "no edit"), (one_edit_less, "do not give the weights"), (twice, "two edits of one fact")],
)
def test_a_changed_file_changes_nothing(
    exported: tuple[Editor, Path],
    new_editor: NewEditor,
    spoil: Callable[[dict[str, list[dict[str, object]]]], None],
    complaint: str,
) -> None:
    raw = json.loads(exported[1].read_text())
    spoil(raw)
    exported[1].write_text(json.dumps(raw))
    other = new_editor("second")
    before = live(other)
    with pytest.raises(JournalError, match=complaint):
        taken_in(other, exported[1])
    assert other.entries == ()
    assert torch.equal(live(other), before)


def test_no_such_file(new_editor: NewEditor, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not an exported journal"):
        taken_in(new_editor("second"), tmp_path / "nothing.json")
