"""An export appears whole and checked, or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from steam_engine.errors import ExportError
from steam_engine.exports import reading
from steam_engine.exports.asking import Question, ask_live
from steam_engine.exports.checkpoint import Checkpoint, weight_bytes
from steam_engine.exports.model import edited_model
from steam_engine.exports.transaction import ExportReport, export, remove_leftovers
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel, load_model
from steam_engine.types import Progress
from tests.steam_engine.conftest import capital, quiet, taught_model

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


KILLED = """
import sys
from pathlib import Path
import torch
from steam_engine.editor import Editor
from steam_engine.exports.asking import Question
from steam_engine.exports.checkpoint import Checkpoint
from steam_engine.exports.model import edited_model
from steam_engine.exports.transaction import export
from tests.steam_engine.conftest import SETTINGS
folder = Path(sys.argv[1])
editor = Editor(torch.load(folder / "model.pt", weights_only=False), folder / "journal", folder / "cache", SETTINGS)

def wait(progress):
    if progress.stage == "Asking the live model":
        print("written", flush=True)
        sys.stdin.readline()

export(Checkpoint(), edited_model(editor), folder / "out" / "mine", [Question("Who?")], wait)
"""


def test_what_a_killed_export_leaves_can_be_removed(tmp_path: Path) -> None:
    torch.save(taught_model("llama"), tmp_path / "model.pt")
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.communicate()
    (left,) = out.iterdir()
    assert (left / "copy" / "model.safetensors").stat().st_size > 0
    (out / ".mine.zip.amend-unfinished").write_text("half an archive")
    (out / ".mine.abcdefgh").mkdir()  # not ours
    (out / "finished").mkdir()
    remove_leftovers(out)
    assert sorted(path.name for path in out.iterdir()) == [".mine.abcdefgh", "finished"]
    remove_leftovers(tmp_path / "missing")
