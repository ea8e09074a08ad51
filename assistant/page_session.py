"""What one browser tab shows, and how the assistant's events change it. Knows neither Gradio nor HTML."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from assistant.conversation import Conversation
from assistant.events import (
    EditDone,
    Event,
    Exported,
    Failure,
    Notice,
    ProposalReady,
    Redone,
    ReplyDone,
    TextPiece,
    TurnsAmended,
    Undone,
    Working,
)
from assistant.proposal import EditProposal
from steam_engine.types import Progress


@dataclass(frozen=True)
class Said:
    """Words in the conversation: a person's or the model's."""

    role: str  # "user" | "assistant"
    text: str
    stopped: bool = False


Content = Said | Notice | EditDone | Undone | Redone | Exported | Failure | TurnsAmended


@dataclass(frozen=True)
class Line:
    """One thing in the transcript. `turn` is its place in the conversation, if it is a turn."""

    content: Content
    turn: int | None = None


@dataclass
class PageSession:
    """One tab's conversation and what is shown around it."""

    conversation: Conversation = field(default_factory=Conversation)
    lines: list[Line] = field(default_factory=list)
    writing: str | None = None  # the reply as far as it has come; None when none is being written
    working: Progress | None = None  # the step of a change that is being made
    cancel: threading.Event = field(default_factory=threading.Event)
    busy: bool = False  # a reply or a change is under way in this tab
    exporting: bool = False
    filled: EditProposal | None = None  # the proposal that was last put into the card's boxes
    states: dict[int, str] = field(default_factory=dict)  # of the changes by number, as they were last shown
    _new_line: int = 0  # where the lines and turns of what is under way begin
    _new_turn: int = 0

    @property
    def proposal(self) -> EditProposal | None:
        """What waits for Apply or Cancel; kept in the conversation, so that /apply means the same."""
        return self.conversation.pending

    @proposal.setter
    def proposal(self, proposal: EditProposal | None) -> None:
        self.conversation.pending = proposal

    def begin(self, said: str | None = None) -> None:
        """Something was asked for: show it, and forget an earlier Stop."""
        self.cancel = threading.Event()
        self.busy = True
        self.working = None
        self.writing = None
        self._new_line, self._new_turn = len(self.lines), len(self.conversation.turns)
        if said is not None:
            self.lines.append(Line(Said("user", said)))

    def finish(self) -> None:
        """It is over, whatever came of it. Text that no `ReplyDone` closed is kept, marked as stopped."""
        if self.writing:
            self.lines.append(Line(Said("assistant", self.writing.strip(), stopped=True)))
        self.writing = None
        self.working = None
        self.busy = False
        self._tie_turns()

    def absorb(self, event: Event) -> None:
        """Let one event change what is shown."""
        match event:
            case TextPiece(text=text):
                self.writing = (self.writing or "") + text
            case ReplyDone(text=text):
                self.writing = None
                self.lines.append(Line(Said("assistant", text, stopped=self.cancel.is_set())))
            case ProposalReady(proposal=proposal):
                self.writing = None
                self.proposal = proposal
            case Working(progress=progress):
                self.writing = None
                self.working = progress
            case _:
                self.writing = None
                self.working = None
                if isinstance(event, Failure) and self.cancel.is_set():
                    event = Notice(event.message)  # whoever pressed Stop got what they wanted
                self.lines.append(Line(event))

    def _tie_turns(self) -> None:
        """Tie what was said since `begin` to the conversation's new turns, to mark amended ones."""
        turns = self.conversation.turns
        place = self._new_turn
        for number in range(self._new_line, len(self.lines)):
            content = self.lines[number].content
            if isinstance(content, Said) and place < len(turns) and turns[place].role == content.role:
                self.lines[number] = Line(content, place)
                place += 1
