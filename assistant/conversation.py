"""One person's conversation: what was said, and which of it the model may still see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from assistant.proposal import EditProposal
from steam_engine.text import mentions

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """What the model sees of one turn."""

    role: Role
    content: str


@dataclass
class Turn:
    """One thing that was said. Amended turns are shown to people and hidden from the model."""

    role: Role
    text: str
    amended: bool = False


@dataclass
class Conversation:
    """The turns in order, a question and then its answer. Belongs to one front end; not thread safe."""

    turns: list[Turn] = field(default_factory=list)
    pending: EditProposal | None = None  # the proposal that /apply or /cancel is about
    caught_up: int = 0  # how many of the assistant's changes of facts this conversation has taken in

    def add_exchange(self, question: str, answer: str) -> None:
        """Add what a person said and what the model replied."""
        self.turns += [Turn("user", question), Turn("assistant", answer)]

    def visible_messages(self) -> tuple[Message, ...]:
        """What the model sees: every turn that is not amended."""
        return tuple(Message(turn.role, turn.text) for turn in self.turns if not turn.amended)

    def amend(self, names: Iterable[str], outdated: Iterable[str]) -> int:
        """Hide the exchanges that a changed fact made stale; an answer from before would mislead the model.

        Args:
            names: the changed fact's subject, in all its spellings; a mention anywhere is enough.
            outdated: objects that are no longer true; only an answer that states one is stale.

        Returns:
            How many turns are newly amended.
        """
        names, outdated = tuple(names), tuple(outdated)
        count = 0
        for exchange in self._exchanges():
            answers = " ".join(turn.text for turn in exchange if turn.role == "assistant")
            whole = " ".join(turn.text for turn in exchange)
            if mentions(whole, names) or mentions(answers, outdated):
                fresh = [turn for turn in exchange if not turn.amended]
                count += len(fresh)
                for turn in fresh:
                    turn.amended = True
        return count

    def _exchanges(self) -> Iterator[list[Turn]]:
        exchange: list[Turn] = []
        for turn in self.turns:
            if turn.role == "user" and exchange:
                yield exchange
                exchange = []
            exchange.append(turn)
        if exchange:
            yield exchange
