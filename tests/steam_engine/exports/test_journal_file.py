"""An exported journal gives the same bits again, on the same base only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from steam_engine.errors import ExportError, JournalError
from steam_engine.exports import journal_file
from steam_engine.exports.asking import Question
from steam_engine.exports.journal_file import JournalFile, replay, written
from steam_engine.exports.model import EditedModel, edited_model
from steam_engine.exports.transaction import export
from steam_engine.loading import load_model
from tests.steam_engine.conftest import capital, quiet
from tests.steam_engine.exports.conftest import StoredEditor, in_two_layers

QUESTIONS = (Question("What is the capital of France?", "Rome"), Question("What is the capital of Germany?"))


@pytest.fixture
def exported(stored_editor: StoredEditor, tmp_path: Path) -> tuple[EditedModel, Path]:
    """A model in bfloat16 with edits in two layers, and its journal."""
    model = in_two_layers(stored_editor("gpt2", "bfloat16"))
    path = tmp_path / "journal.json"
    path.write_text(written(model).model_dump_json())
    return model, path


def test_replayed_it_is_the_live_model_to_the_bit(exported: tuple[EditedModel, Path]) -> None:
    model, path = exported
    again = load_model(model.loaded.source, device="cpu", dtype="bfloat16")
    assert not torch.equal(again.arch.down_projection(2).weight, model.live(2))
    replay(path, again)
    live = dict(model.loaded.model.named_parameters())
    for name, parameter in again.model.named_parameters():
        assert torch.equal(parameter, live[name]), name


def test_the_export_is_replayed_before_it_appears(stored_editor: StoredEditor, tmp_path: Path) -> None:
    editor = stored_editor()
    editor.apply(capital(), quiet)
    report = export(JournalFile(), edited_model(editor), tmp_path / "out" / "edits", QUESTIONS, quiet)
    assert report.reader == "a replay on the base model"
    assert sorted(path.name for path in report.path.iterdir()) == ["README.md", "journal.json"]
    found = json.loads((report.path / "journal.json").read_text())
    assert found["version"] == 2
    assert found["edits"][0]["edit"]["target"] == "Rome"


def test_without_an_edit_there_is_no_journal(stored_editor: StoredEditor, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Edit first"):
        export(JournalFile(), edited_model(stored_editor()), tmp_path / "out" / "none", QUESTIONS, quiet)


def test_another_base_is_told(exported: tuple[EditedModel, Path], stored_models: Callable[[str], Path]) -> None:
    for source, dtype, complaint in (
        (str(stored_models("llama")), "bfloat16", "another base model"),
        (exported[0].loaded.source, "float32", "Load it with dtype bfloat16"),
    ):
        loaded = load_model(source, device="cpu", dtype=dtype)
        before = {name: parameter.clone() for name, parameter in loaded.model.named_parameters()}
        with pytest.raises(JournalError, match=complaint):
            replay(exported[1], loaded)
        assert all(torch.equal(before[name], parameter) for name, parameter in loaded.model.named_parameters())


def newer(raw: dict[str, Any]) -> None:
    raw["version"] = 3


def not_a_journal(raw: dict[str, Any]) -> None:
    del raw["kind"]


def shorter(raw: dict[str, Any]) -> None:
    factors = raw["edits"][0]["factors"][0]
    factors["left"] = factors["left"][:-8]


def no_base64(raw: dict[str, Any]) -> None:
    raw["edits"][0]["factors"][0]["left"] = "?" * 8


def no_such_layer(raw: dict[str, Any]) -> None:
    raw["edits"][0]["factors"][0]["layer"] = 99


def one_edit_less(raw: dict[str, Any]) -> None:
    raw["edits"].pop()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (newer, "has version 3"), (not_a_journal, "not an exported journal"), (shorter, "does not fit"),
        (no_base64, "does not fit"), (no_such_layer, "does not fit"), (one_edit_less, "do not give the weights"),
    ],
)  # fmt: skip
def test_a_damaged_file_changes_nothing(
    exported: tuple[EditedModel, Path], spoil: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    model, path = exported
    raw = json.loads(path.read_text())
    spoil(raw)
    path.write_text(json.dumps(raw))
    again = load_model(model.loaded.source, device="cpu", dtype="bfloat16")
    before = again.arch.down_projection(0).weight.clone()
    with pytest.raises(JournalError, match=complaint):
        replay(path, again)
    assert torch.equal(again.arch.down_projection(0).weight, before)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="damaged"):
        journal_file.read(tmp_path / "nowhere.json")
