"""Which facts changed since a conversation last looked, so that its stale turns are hidden from the model."""

from __future__ import annotations

from dataclasses import dataclass

from assistant.conversation import Conversation
from steam_engine.types import FactEdit


@dataclass(frozen=True)
class _Change:
    names: tuple[str, ...]  # of the subject
    outdated: tuple[str, ...]  # objects that are no longer true


class ChangeLog:
    """All changes since the start, whoever made them; every conversation catches up on its own."""

    def __init__(self) -> None:
        self._changes: list[_Change] = []

    def note(self, edit: FactEdit, outdated: tuple[str, ...]) -> None:
        """The fact that `edit` is about has changed; `outdated` was true before."""
        names = (edit.subject, *edit.aliases)
        bare = tuple(name.removeprefix("the ").removeprefix("The ") for name in names)
        self._changes.append(_Change(bare, outdated))

    def catch_up(self, conversation: Conversation) -> int:
        """Amend the conversation for every change that it has not seen. Returns how many turns that hid."""
        news = self._changes[conversation.caught_up :]
        conversation.caught_up += len(news)
        return sum(conversation.amend(change.names, change.outdated) for change in news)
