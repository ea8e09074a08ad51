"""The yardstick: the fact is told in the prompt of every question, and no weight changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from steam_engine.methods.base import Outcome
from steam_engine.tokens import sentence
from steam_engine.types import CancelToken, FactEdit, ProgressCallback


@dataclass
class ToldSession:
    """The facts so far; a later one about the same subject and relation takes the place of an earlier one."""

    facts: dict[tuple[str, str], str] = field(default_factory=dict)

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """Remembers the facts; see `Session.apply`."""
        for edit in edits:
            fact = f"{sentence(edit.statements[0], edit.subject)} {edit.target}".rstrip(".")
            self.facts[edit.subject.casefold(), edit.relation] = fact + "."
        return tuple(Outcome(edit) for edit in edits)

    def prompt(self, question: str) -> str:
        """The facts, and then the question."""
        if not self.facts:
            return question
        return f"Fact: {' '.join(self.facts.values())} Assume that this is true.\n{question}"


@dataclass
class Told:
    """Being told as a `Method`."""

    name: str = "told"

    @contextmanager
    def session(self) -> Iterator[ToldSession]:
        """See `Method.session`."""
        yield ToldSession()
