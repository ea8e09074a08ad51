"""An export is written aside, read back, asked, and only then renamed into place: it appears whole, or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError

from steam_engine.errors import ExportError
from steam_engine.exports.asking import Question, Reading, ask_live
from steam_engine.exports.model import EditedModel
from steam_engine.exports.work import Work
from steam_engine.types import CancelToken, Progress, ProgressCallback

MARGIN = 1.1  # a file system needs a little more than the bytes of the files
UNFINISHED = ".amend-unfinished"  # how names of what is not ready end; they begin with a dot


@dataclass(frozen=True)
class Examination:
    """All that a check looks at."""

    model: EditedModel
    copy: Path  # the directory that was written
    scratch: Path  # for results of the reader
    questions: Sequence[Question]
    live: Reading  # what the model in memory says


@dataclass(frozen=True)
class Checked:
    """A check that was passed."""

    reader: str  # who read the export back, for people
    answers: tuple[str, ...]


class ExportFormat(Protocol):
    """One way to take the edited model away."""

    @property
    def name(self) -> str:
        """What a person types."""

    def size(self, model: EditedModel) -> int:
        """About how many bytes will be written. Raises ExportError where the format cannot hold this model."""

    def scratch(self, model: EditedModel) -> int:
        """About how many bytes the check needs meanwhile."""

    def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
        """Fills the empty `directory`. `name` is what the person called the export."""

    def check(self, exam: Examination, work: Work) -> Checked:
        """Has an independent reader read the copy back. Raises ExportError unless it is as good as the live model."""


@dataclass(frozen=True)
class ExportReport:
    """A finished export."""

    format: str
    path: Path
    bytes: int
    seconds: float
    reader: str  # who read it back, for people
    answers: tuple[tuple[str, str], ...]  # (question, what the exported model answers)


def export(
    format: ExportFormat,
    model: EditedModel,
    target: Path,
    questions: Sequence[Question],
    progress: ProgressCallback,
    copies: int = 1,
    cancel: CancelToken | None = None,
) -> ExportReport:
    """Writes the model as it is now to the new directory `target`.

    Args:
        format: of the export.
        model: the live, edited model.
        target: must not exist; its parent is made.
        questions: at least one; asked of both the live and the exported model.
        progress: told about every step.
        copies: how often the disk must have room for the export; 2 when it is packed afterwards.
        cancel: set to stop; asked between the steps and while the export is read back.

    Raises:
        ExportError: not possible for this model, target exists, no space, not writable, stopped, or the check
            failed. Nothing is left behind.
    """
    work = Work(progress, cancel or threading.Event())
    started = time.perf_counter()
    try:
        _refuse_existing(target)
    except OSError as error:
        raise _unwritable(target.parent, error) from error
    size = format.size(model)
    _need(target.parent, copies * size + format.scratch(model))
    try:
        temporary = Path(tempfile.mkdtemp(UNFINISHED, f".{target.name}.", target.parent))
    except OSError as error:
        raise _unwritable(target.parent, error) from error
    try:
        copy, scratch = temporary / "copy", temporary / "scratch"
        copy.mkdir()
        scratch.mkdir()
        work.tell("Writing the export", 0, 3, _amount(size))
        format.write(model, copy, target.name, work)
        work.tell("Asking the live model", 1, 3)
        live = ask_live(model.loaded, questions, work)
        work.tell("Reading the export back in a process of its own", 2, 3)
        checked = format.check(Examination(model, copy, scratch, questions, live), work)
        work.go_on()
        written = sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())
        _refuse_existing(target)  # a rename would replace an empty directory
        copy.rename(target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ExportError(f"The export could not be written ({reason}); nothing is left behind.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    progress(Progress("Exported", 3, 3))
    answers = tuple((question.text, answer) for question, answer in zip(questions, checked.answers, strict=True))
    return ExportReport(format.name, target, written, time.perf_counter() - started, checked.reader, answers)


def remove_leftovers(directory: Path) -> None:
    """Removes what killed processes left of exports to `directory`; nobody may be exporting there.

    What cannot be removed stays: it is only in the way of space.
    """
    with contextlib.suppress(OSError):
        for path in list(directory.glob(f".*{UNFINISHED}")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise ExportError(f"There is already an export named '{target.name}'. Choose another name.")


def _need(directory: Path, size: int) -> None:
    """Makes the directory. Raises ExportError unless it has room for `size` bytes."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise _unwritable(directory, error) from error
    if free < size * MARGIN:
        raise ExportError(
            f"The export needs {_amount(size)} and the disk has {_amount(free)} left. Free some space, or choose "
            "another --workspace."
        )


def _unwritable(directory: Path, error: OSError) -> ExportError:
    return ExportError(f"{directory} cannot be written to ({error.strerror}).")


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
