"""Everything a front end can be told; the web page and the terminal render the same events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assistant.proposal import EditProposal, ResultCard
from steam_engine.types import JournalEntry, Progress


@dataclass(frozen=True)
class TextPiece:
    """A piece of a reply, as it is generated. Append it to the pieces before."""

    text: str


@dataclass(frozen=True)
class ReplyDone:
    """A reply is over (or was stopped) and is now part of the conversation."""

    text: str  # all of it
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Notice:
    """Plain text from a command, with a table when there are rows."""

    text: str
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class ProposalReady:
    """An edit waits for a yes."""

    proposal: EditProposal


@dataclass(frozen=True)
class Working:
    """One step of something that takes a while."""

    progress: Progress


@dataclass(frozen=True)
class EditDone:
    """An edit is in the weights."""

    card: ResultCard


@dataclass(frozen=True)
class Undone:
    """An edit was taken out of the weights."""

    entry: JournalEntry
    amended: int  # turns of the conversation that the model does not see any more because of it


@dataclass(frozen=True)
class Redone:
    """An undone edit is in the weights again."""

    entry: JournalEntry
    amended: int  # as in Undone


@dataclass(frozen=True)
class Exported:
    """The model was written in some format, and what was written was checked."""

    format: str
    path: Path  # its directory
    archive: Path | None  # the same in one file, for a download
    bytes: int
    seconds: float
    reader: str  # what read it back for the check: "peft 0.21.2"
    answers: tuple[tuple[str, str], ...]  # (question, answer) of the check in the exported model


@dataclass(frozen=True)
class Failure:
    """Something was not done; nothing has changed. The message says what to do."""

    message: str


@dataclass(frozen=True)
class TurnsAmended:
    """Earlier turns that a changed fact made stale: the model does not see them any more."""

    count: int


Event = (
    TextPiece
    | ReplyDone
    | Notice
    | ProposalReady
    | Working
    | EditDone
    | Undone
    | Redone
    | Exported
    | Failure
    | TurnsAmended
)
