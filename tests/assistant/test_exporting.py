"""Exports: where they go, what is refused, and the one file for a download."""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant import exporting
from assistant.commands import EXPORT_FORMATS
from assistant.errors import ExportExistsError
from steam_engine.errors import ExportError
from steam_engine.exports import transaction
from steam_engine.exports.asking import Question
from steam_engine.exports.registry import FORMATS
from steam_engine.exports.transaction import ExportReport
from steam_engine.types import FactEdit, Progress
from tests.assistant.fakes import TRACE


class OneAtATime:
    """A host that runs work at once and has one active edit."""

    edit = FactEdit("France", "capital", "Rome", ("The capital of {} is",), ("What is the capital of {}?",))
    edited = SimpleNamespace(entries=(SimpleNamespace(edit=edit, trace=TRACE, state="active"),))

    def run(self, work, cancel):
        yield Progress("Writing", 0, 1)
        return work(lambda progress: None, cancel)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list:
    """Writes two small files instead of a checkpoint; what it was asked for is in the list."""
    calls: list = []

    def write(format, model, target, questions, progress, copies, cancel):
        calls.append((format, model, target, questions, copies))
        (target / "deep").mkdir(parents=True)
        (target / "model.safetensors").write_bytes(bytes(1000))
        (target / "deep" / "config.json").write_text("{}")
        return ExportReport(format.name, target, 1002, 0.5, "a reader", ((questions[0].text, "Rome."),))

    monkeypatch.setattr(transaction, "export", write)
    return calls


def run(directory: Path, name: str, archive: bool):
    steps = exporting.export(OneAtATime(), directory, "lora", name, archive, threading.Event())
    stages = []
    while True:
        try:
            stages.append(next(steps).stage)
        except StopIteration as end:
            return stages, end.value


def test_a_checkpoint_and_its_archive(engine: list, tmp_path: Path) -> None:
    stages, exported = run(tmp_path / "exports", "mine", archive=True)
    assert stages == ["Writing", "Packing the archive", "Packing the archive"]
    assert exported.path == tmp_path / "exports" / "mine"
    assert exported.answers == (("What is the capital of France?", "Rome."),)
    assert (exported.format, exported.reader) == ("lora", "a reader")
    asked = [Question("What is the capital of France?", "Rome")]
    assert engine == [(FORMATS["lora"], OneAtATime.edited, exported.path, asked, 2)]
    with zipfile.ZipFile(exported.archive) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["mine/deep/config.json", "mine/model.safetensors"]
        assert archive.getinfo("mine/model.safetensors").compress_type == zipfile.ZIP_STORED
    assert sorted(p.name for p in exported.path.parent.iterdir()) == ["mine", "mine.zip"]


def test_no_archive_where_nobody_downloads(engine: list, tmp_path: Path) -> None:
    _, exported = run(tmp_path, "mine", archive=False)
    assert exported.archive is None
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("how", ["disk full", "closed"])
def test_an_archive_that_is_not_finished_frees_the_name(engine: list, tmp_path: Path, how: str, monkeypatch) -> None:
    steps = exporting.export(OneAtATime(), tmp_path, "lora", "mine", True, threading.Event())
    next(steps)
    assert next(steps).stage == "Packing the archive"
    if how == "closed":
        steps.close()
    else:

        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(zipfile.ZipFile, "write", full)
        with pytest.raises(ExportError, match="No space left"):
            list(steps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["mine", "mine.zip"])
def test_nothing_is_overwritten(engine: list, tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir()
    with pytest.raises(ExportExistsError, match="another name"):
        run(tmp_path, "mine", archive=True)
    assert engine == []


def test_an_engine_that_fails_is_heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*arguments: object) -> None:
        raise ExportError("The disk is full.")

    monkeypatch.setattr(transaction, "export", fail)
    with pytest.raises(ExportError, match="disk"):
        run(tmp_path, "mine", archive=True)
    assert list(tmp_path.iterdir()) == []


def test_half_an_archive_is_never_left(engine: list, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("a")
    packing = exporting.pack(tmp_path / "mine", tmp_path / "mine.zip")
    next(packing)
    packing.close()
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_every_format_can_be_typed() -> None:
    assert tuple(FORMATS) == EXPORT_FORMATS


@pytest.mark.parametrize(
    ("place", "complaint"), [("file/exports", "cannot be written to"), ("x" * 300, "cannot be read")]
)
def test_a_directory_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, complaint: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    small = SimpleNamespace(name="small", size=lambda model: 10, scratch=lambda model: 0)
    monkeypatch.setitem(FORMATS, "lora", small)
    with pytest.raises(ExportError, match=complaint):
        run(tmp_path / place, "mine", archive=False)
