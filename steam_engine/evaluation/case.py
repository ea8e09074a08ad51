"""What one evaluation case is, whatever file it came from: the edits, and the questions by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["direct", "paraphrase", "multi_hop", "locality"]


@dataclass(frozen=True)
class CaseEdit:
    """One wish of a case. Templates hold exactly one {} which stands for the subject."""

    subject: str
    statement: str  # ends right before the object: "The capital of {} is"
    target: str
    questions: tuple[str, ...] = ()  # direct questions, which an edit may be trained on
    old_object: str | None = None
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What is asked after the edit, and what counts as right."""

    kind: Kind
    text: str  # a question, or an unfinished sentence
    accept: tuple[str, ...]  # any of them as whole words makes an answer right
    second: str | None = None  # of a hop: the question about the new object itself, where the case has it


@dataclass(frozen=True)
class EvalCase:
    """One row of a case file."""

    number: int  # of the row: its line in JSON lines, its 1-based index in a JSON list
    edits: tuple[CaseEdit, ...]  # more than one only in MQuAKE
    questions: tuple[Question, ...]

    def of_kind(self, kind: Kind) -> tuple[Question, ...]:
        """The questions of one kind, in the file's order."""
        return tuple(question for question in self.questions if question.kind == kind)
