"""What an evaluation writes down, line by line, and reads back when it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from steam_engine.errors import EvaluationError
from steam_engine.evaluation.case import Kind
from steam_engine.journal import write_atomically


@dataclass(frozen=True)
class Asked:
    """One question and what became of it."""

    kind: Kind
    question: str
    before: str  # the unedited model's answer, not told
    after: str
    right_before: bool
    right: bool
    answerable: bool | None = None  # of a hop: the unedited model answers its second question rightly; None: not known

    @property
    def counts(self) -> bool:
        """A locality question that was wrong before says nothing."""
        return self.kind != "locality" or self.right_before


@dataclass(frozen=True)
class Result:
    """One case under one method."""

    method: str
    case: int  # its number in the file
    done: int  # edits in the model when it was asked: 1, a batch, or the whole sequence so far
    asked: tuple[Asked, ...]
    errors: tuple[str, ...]  # why edits of the case were refused
    seconds: float  # an edit
    steps: float  # an edit
    peak_mib: float
    drift: float
    perplexity_ratio: float
    fluency: float


@dataclass(frozen=True)
class Failed:
    """A case that could not be measured under a method; a later run tries it again."""

    method: str
    case: int
    reason: str


class Plan(BaseModel):
    """What a run does; results of another plan are not mixed with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    fingerprint: str
    dtype: str
    cases: str  # sha256 of the case file
    numbers: tuple[int, ...]  # of the cases, in order
    mode: str  # "each", "batch" or "sequential"
    size: int  # edits of a batch
    settings: dict[str, Any]  # of STEAM
    version: int = 1


class Results:
    """Results in memory, in the order in which they came."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self.results: list[Result] = []
        self._by_case: dict[int, list[Result]] = {}
        for result in results:
            self._keep(result)

    def _keep(self, result: Result) -> None:
        self.results.append(result)
        self._by_case.setdefault(result.case, []).append(result)

    def has(self, method: str, case: int, done: int | None = None) -> bool:
        """Whether a case was measured already (at that number of edits)."""
        return any(r.method == method and done in (None, r.done) for r in self.of_case(case))

    def of_case(self, case: int) -> tuple[Result, ...]:
        """The results of a case under all methods; each of them knows what the unedited model says."""
        return tuple(self._by_case.get(case, ()))

    def add(self, result: Result) -> None:
        """Keeps one more result."""
        self._keep(result)


class ResultFile(Results):
    """results.jsonl in a directory, with the plan beside it. A line is there whole, or not at all.

    Raises:
        EvaluationError: the directory holds results of another plan, or cannot be written.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.path = directory / "results.jsonl"
        beside = directory / "plan.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if beside.exists():
                if Plan.model_validate_json(beside.read_bytes()) != plan:
                    raise EvaluationError(
                        f"{directory} holds the results of another evaluation (other cases, model or options). "
                        "Choose another --out, or repeat the options to go on with it."
                    )
            elif self.path.exists():
                raise EvaluationError(f"{directory} holds results without a plan.json. Choose another --out.")
            else:
                write_atomically(beside, plan.model_dump_json(indent=1).encode())
        except (OSError, ValidationError) as error:
            raise EvaluationError(f"The results in {directory} cannot be used: {error}") from error
        super().__init__(self._read())

    def _read(self) -> Iterator[Result]:
        if not self.path.exists():
            return
        adapter = TypeAdapter(Result)
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):  # the last line was being written when the run was killed
            with self.path.open("r+b") as file:
                file.truncate(whole)
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                yield adapter.validate_json(line)
            except ValidationError:
                raise EvaluationError(
                    f"Line {number} of {self.path} is damaged. Delete that line to measure it again."
                ) from None

    def add(self, result: Result) -> None:
        """Writes one more result, and is sure that it is on the disk."""
        line = TypeAdapter(Result).dump_json(result) + b"\n"
        try:
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise EvaluationError(f"A result could not be written to {self.path}: {error.strerror}") from error
        self._keep(result)
