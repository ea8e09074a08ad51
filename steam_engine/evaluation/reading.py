"""Reads a case file, a JSON list or JSON lines: good rows as cases, the others with number and reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steam_engine.errors import CaseFileError
from steam_engine.evaluation.case import EvalCase
from steam_engine.evaluation.formats import RowError, case_of


@dataclass(frozen=True)
class Skipped:
    """A row that is not a case."""

    number: int  # its line in JSON lines, its 1-based index in a JSON list
    reason: str


@dataclass(frozen=True)
class CaseFile:
    """The cases of a file in order, and the rows that were left out."""

    cases: tuple[EvalCase, ...]
    skipped: tuple[Skipped, ...]


def read_cases(path: Path) -> CaseFile:
    """Reads all cases of a file.

    Raises:
        CaseFileError: the file cannot be read, or has no good row.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"Cannot read the cases in {path}: {error}") from None
    cases: list[EvalCase] = []
    skipped: list[Skipped] = []
    for number, row in _rows(text):
        try:
            if isinstance(row, json.JSONDecodeError):
                raise RowError(f"not JSON: {row.msg}")
            cases.append(case_of(row, number))
        except RowError as error:
            skipped.append(Skipped(number, str(error)))
    if not cases:
        why = f"; row {skipped[0].number}: {skipped[0].reason}" if skipped else ": it is empty"
        raise CaseFileError(f"{path} holds no case{why}.")
    return CaseFile(tuple(cases), tuple(skipped))


def _rows(text: str) -> Iterator[tuple[int, object]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        whole = None
    if isinstance(whole, list):
        yield from enumerate(whole, start=1)
    elif isinstance(whole, dict):
        yield 1, whole
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except json.JSONDecodeError as error:
                    yield number, error
