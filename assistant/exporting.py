"""Takes the corrected model away: a checked directory in some format, and one file of it for a download."""

from __future__ import annotations

import shutil
import threading
import zipfile
from collections.abc import Generator
from pathlib import Path

from assistant.errors import ExportExistsError
from assistant.events import Exported
from assistant.host import ModelHost
from steam_engine.errors import ExportError
from steam_engine.exports import transaction
from steam_engine.exports.asking import Question
from steam_engine.exports.model import EditedModel
from steam_engine.exports.registry import FORMATS
from steam_engine.exports.transaction import ExportReport
from steam_engine.types import Progress, ProgressCallback

CHECKED_QUESTIONS = 8


def export(
    host: ModelHost, exports: Path, format: str, name: str, archive: bool, cancel: threading.Event
) -> Generator[Progress, None, Exported]:
    """Write `exports`/`name`, and `exports`/`name`.zip when `archive` is wanted.

    Args:
        host: owner of the model.
        exports: directory of all exports; made when missing.
        format: name of one of `FORMATS`.
        name: checked by `commands.check_export_name`.
        archive: whether to pack it into one file as well.
        cancel: ends the waiting for the model and stops the export.

    Yields:
        Every step.

    Raises:
        ExportExistsError: there is one of that name.
        ExportError: it could not be written, or gave other answers than the model here.
    """
    target, packed = exports / name, exports / f"{name}.zip"

    def refuse_existing() -> None:
        try:
            taken = target.exists() or packed.exists()
        except OSError as problem:
            raise ExportError(f"{exports} cannot be read ({problem.strerror}); nothing was exported.") from problem
        if taken:
            raise ExportExistsError(f"There is already an export '{name}' in {exports}; choose another name.")

    def work(progress: ProgressCallback, stop: threading.Event) -> ExportReport:
        refuse_existing()  # again: somebody else may have exported while this one waited
        copies = 2 if archive else 1
        model = host.edited
        return transaction.export(FORMATS[format], model, target, _questions(model), progress, copies, stop)

    refuse_existing()
    report = yield from host.run(work, cancel)
    if archive:
        try:
            yield from pack(target, packed)
        except OSError as problem:
            shutil.rmtree(target, ignore_errors=True)
            raise ExportError(f"The archive could not be written ({problem.strerror}); nothing is left.") from problem
        except GeneratorExit:  # whoever wanted the file has gone; the name is free again
            shutil.rmtree(target, ignore_errors=True)
            raise
    return Exported(
        report.format, report.path, packed if archive else None, report.bytes, report.seconds, report.reader,
        report.answers,
    )  # fmt: skip


def _questions(model: EditedModel) -> list[Question]:
    """One question about each of the latest edits, or an ordinary one when there are none."""
    asked = [
        Question(e.edit.questions[0].replace("{}", e.edit.subject), e.edit.target)
        for e in model.entries[-CHECKED_QUESTIONS:]
    ]
    return asked or [Question("What is the capital of France?")]


def pack(directory: Path, target: Path) -> Generator[Progress, None, None]:
    """Store a directory in a zip file, uncompressed (weights do not get smaller), straight to the disk."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in files)
    temporary = target.with_name(f".{target.name}{transaction.UNFINISHED}")
    done = 0
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for path in files:
                yield Progress("Packing the archive", done, total, path.name)
                archive.write(path, str(Path(directory.name) / path.relative_to(directory)))
                done += path.stat().st_size
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
