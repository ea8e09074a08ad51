"""An export appears whole and checked, or not at all."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steam_engine.editor import Editor
from steam_engine.errors import ExportError
from steam_engine.exports import reading
from steam_engine.exports.asking import Question, ask_live
from steam_engine.exports.checkpoint import Checkpoint, weight_bytes
from steam_engine.exports.model import edited_model
from steam_engine.exports.transaction import ExportReport, export
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel, load_model
from steam_engine.types import Progress
from tests.steam_engine.conftest import capital, quiet

QUESTIONS = (Question("What is the capital of France?", "Rome"), Question("What is the capital of Germany?"))
NewEditor = Callable[..., Editor]


def answers(loaded: LoadedModel) -> tuple[str, ...]:
    return ask_live(loaded, QUESTIONS, Work(quiet, threading.Event())).answers


def write(editor: Editor, target: Path, **options: object) -> ExportReport:
    return export(Checkpoint(), edited_model(editor), target, QUESTIONS, **{"progress": quiet, **options})


def use_reader(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another script in the place of the reader."""
    (tmp_path / "with_transformers.py").write_text(script)
    monkeypatch.setattr(reading, "READERS", tmp_path)


def test_export_is_read_back_and_loads_again(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    target = tmp_path / "out" / "edited"
    report = write(editor, target)
    assert [q for q, _ in report.answers] == [q.text for q in QUESTIONS]
    assert tuple(a for _, a in report.answers) == answers(editor.loaded)
    assert report.format == "safetensors"
    assert report.reader.startswith("transformers ")
    assert report.bytes == sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    assert "The capital of France is **Rome**" in (target / "README.md").read_text()
    assert [p.name for p in target.parent.iterdir()] == ["edited"]
    again = load_model(str(target), device="cpu")
    assert answers(again) == answers(editor.loaded)


def test_existing_target_is_refused(new_editor: NewEditor, tmp_path: Path) -> None:
    editor = new_editor()
    (tmp_path / "taken").mkdir()
    with pytest.raises(ExportError, match="already an export named 'taken'"):
        write(editor, tmp_path / "taken")


LIAR = """
import json, sys
import numpy
job = json.load(sys.stdin)
found = {"ids": [[1]] * len(job["prompts"]), "answers": ["something else"] * len(job["prompts"])}
numpy.save(job["out"] + "/logits.npy", numpy.zeros((len(job["prompts"]), 4), "float32"))
open(job["out"] + "/reading.json", "w").write(json.dumps(found))
"""


def test_a_failed_check_leaves_nothing(new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_reader(LIAR, tmp_path, monkeypatch)
    with pytest.raises(ExportError, match="with 'something else'"):
        write(new_editor(), tmp_path / "out" / "bad")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_reader_that_fails_leaves_nothing(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_reader("raise SystemExit('cannot read it')", tmp_path, monkeypatch)
    with pytest.raises(ExportError, match="cannot read it"):
        write(new_editor(), tmp_path / "out" / "bad")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_stopped_export_ends_the_reader_and_leaves_nothing(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_reader("import time; time.sleep(300)", tmp_path, monkeypatch)
    cancel = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.stage.startswith("Reading"):
            threading.Timer(0.5, cancel.set).start()

    started = time.perf_counter()
    with pytest.raises(ExportError, match="stopped"):
        write(new_editor(), tmp_path / "out" / "bad", progress=stop, cancel=cancel)
    assert time.perf_counter() - started < 60
    assert list((tmp_path / "out").iterdir()) == []


def test_room_is_needed_for_the_archive_too(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = new_editor()
    usage = shutil.disk_usage(tmp_path)._replace(free=int(weight_bytes(edited_model(editor)) * 1.5))
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ExportError, match="Free some space"):
        write(editor, tmp_path / "out" / "big", copies=2)


def test_a_full_disk_is_said_before_anything_is_written(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(ExportError, match="Free some space"):
        write(new_editor(), tmp_path / "out" / "big")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_reader_that_says_nothing_is_no_check(
    new_editor: NewEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_reader("", tmp_path, monkeypatch)
    with pytest.raises(ExportError, match="said nothing"):
        write(new_editor(), tmp_path / "out" / "bad")
    assert list((tmp_path / "out").iterdir()) == []
