"""An export appears whole and checked, or not at all."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steam_engine import export
from steam_engine.editor import Editor
from steam_engine.errors import ExportError
from steam_engine.export import export_safetensors, live_answers
from steam_engine.loading import load_model
from steam_engine.types import Progress
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
    monkeypatch.setattr(
        export, "live_answers", lambda _loaded, questions, _cancel: ("something else",) * len(questions)
    )
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


def test_a_stopped_export_ends_the_reader_and_leaves_nothing(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "READER", "import time; time.sleep(300)")
    cancel = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.stage.startswith("Reading"):
            threading.Timer(0.5, cancel.set).start()

    started = time.perf_counter()
    with pytest.raises(ExportError, match="stopped"):
        export_safetensors(new_editor().loaded, (), tmp_path / "out" / "bad", QUESTIONS, stop, cancel=cancel)
    assert time.perf_counter() - started < 60
    assert list((tmp_path / "out").iterdir()) == []


def test_room_is_needed_for_the_archive_too(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = new_editor().loaded
    size = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    usage = shutil.disk_usage(tmp_path)._replace(free=int(size * 1.5))
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ExportError, match="Free some space"):
        export_safetensors(loaded, (), tmp_path / "out" / "big", QUESTIONS, quiet, copies=2)


def test_a_full_disk_is_said_before_anything_is_written(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ExportError, match="Free some space"):
        export_safetensors(new_editor().loaded, (), tmp_path / "out" / "big", QUESTIONS, quiet)
    assert list((tmp_path / "out").iterdir()) == []
