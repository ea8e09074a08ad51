"""An export appears whole and checked, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from steam_engine import export
from steam_engine.editor import Editor
from steam_engine.errors import ExportError
from steam_engine.export import export_safetensors, live_answers
from steam_engine.loading import load_model
from tests.steam_engine.conftest import capital, quiet

QUESTIONS = ("What is the capital of France?", "What is the capital of Germany?")
NewEditor = Callable[..., Editor]


def test_export_is_read_back_and_loads_again(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    target = tmp_path / "out" / "edited"
    report = export_safetensors(editor.loaded, editor.active, target, QUESTIONS, quiet)
    assert [q for q, _ in report.answers] == list(QUESTIONS)
    assert tuple(a for _, a in report.answers) == live_answers(editor.loaded, QUESTIONS)
    assert report.bytes == sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    assert "The capital of France is **Rome**" in (target / "README.md").read_text()
    assert [p.name for p in target.parent.iterdir()] == ["edited"]
    again = load_model(str(target), device="cpu")
    assert live_answers(again, QUESTIONS) == live_answers(editor.loaded, QUESTIONS)


def test_existing_target_is_refused(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    (tmp_path / "taken").mkdir()
    with pytest.raises(ExportError, match="already an export named 'taken'"):
        export_safetensors(editor.loaded, (), tmp_path / "taken", QUESTIONS, quiet)


def test_a_failed_check_leaves_nothing(new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "live_answers", lambda _loaded, questions: ("something else",) * len(questions))
    with pytest.raises(ExportError, match="was removed"):
        export_safetensors(new_editor().loaded, (), tmp_path / "out" / "bad", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_reader_that_fails_leaves_nothing(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "READER", "raise SystemExit('cannot read it')")
    with pytest.raises(ExportError, match="cannot read it"):
        export_safetensors(new_editor().loaded, (), tmp_path / "out" / "bad", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_written(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ExportError, match="Free some space"):
        export_safetensors(new_editor().loaded, (), tmp_path / "out" / "big", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []
