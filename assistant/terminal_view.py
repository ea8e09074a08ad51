"""Events as text: lines for people, without control codes where the output is not a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

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
from assistant.proposal import EditProposal, ProbeResult, ResultCard
from steam_engine.types import JournalEntry, Progress

_PLAIN_WIDTH = 10_000  # never wrap for a file or a pipe
_KINDS = {
    "direct": "Asked directly",
    "paraphrase": "In other words",
    "multi-hop": "What follows from it",
    "locality": "What should stay",
}


def safe(text: str) -> str:
    """The text without control characters, which could move the cursor or change colours; new lines stay."""
    return "".join(c for c in text if c in "\n\t" or not unicodedata.category(c).startswith("C") or c in "\u200c\u200d")


class TerminalView:
    """Prints events.

    Args:
        out: where to.
        tty: whether a person looks at it: colours, wrapped lines and a line that shows progress.
    """

    def __init__(self, out: TextIO, tty: bool) -> None:
        self._tty = tty
        if tty:
            self.console = Console(file=out, highlight=False)
        else:
            self.console = Console(
                file=out, highlight=False, force_terminal=False, color_system=None, width=_PLAIN_WIDTH,
                legacy_windows=False,
            )  # fmt: skip
        self._status: Status | None = None
        self._stage = ""
        self._writing = False

    def line(self, text: str = "", style: str = "") -> None:
        """One or more lines of outside text, never read as markup."""
        self._settle()
        self.console.print(Text(safe(text), style=style), soft_wrap=not self._tty)

    def show(self, event: Event) -> None:
        """Print one event."""
        match event:
            case TextPiece(text=text):
                self._end_status()
                self.console.print(Text(safe(text)), end="", soft_wrap=True)
                self.console.file.flush()
                self._writing = True
            case ReplyDone(text=text, tokens=tokens, seconds=seconds):
                self._settle()
                if not text:
                    self.line("(no answer)", "dim")
                if self._tty:
                    self.line(f"{tokens} tokens in {seconds:.1f} s", "dim")
            case Working(progress=progress):
                self._work(progress)
            case Notice():
                self._notice(event)
            case ProposalReady(proposal=proposal):
                self._proposal(proposal)
            case EditDone(card=card):
                self._card(card)
            case Undone(entry=entry):
                self.line(f"Edit {entry.number} is undone: {fact(entry)}", "green")
            case Redone(entry=entry):
                self.line(f"Edit {entry.number} is back: {fact(entry)}", "green")
            case TurnsAmended(count=count):
                self.line(
                    f"{_plural(count, 'earlier turn')} out of date; the model does not see them any more.",
                    "dim",
                )
            case Exported():
                self._exported(event)
            case Failure(message=message):
                self.line(message, "red")

    def close(self) -> None:
        """Finish an open line and take the progress away."""
        self._settle()

    # -- pieces -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._end_status()
        if self._writing:
            self._writing = False
            self.console.print()

    def _end_status(self) -> None:
        self._stage = ""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _work(self, progress: Progress) -> None:
        count = f" {progress.done:,} of {progress.total:,}" if progress.total > 1 else ""
        detail = f" ({progress.detail})" if progress.detail else ""
        if not self._tty:
            if progress.stage != self._stage:
                self.line(f"... {progress.stage}")
                self._stage = progress.stage
            return
        text = Text(safe(f"{progress.stage}{count}{detail}"))
        if self._status is None:
            self._settle()
            self._status = self.console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def _notice(self, notice: Notice) -> None:
        self.line(notice.text)
        if not notice.rows:
            return
        table = Table(box=None, show_edge=False, pad_edge=False, header_style="bold")
        for header in notice.headers:
            table.add_column(Text(safe(header)), overflow="fold")
        for row in notice.rows:
            table.add_row(*(Text(safe(cell)) for cell in row))
        self.console.print(table)

    def _proposal(self, proposal: EditProposal) -> None:
        self.line(f"Proposed edit: {proposal.statement}", "bold")
        self._field("subject", proposal.subject)
        self._field("relation", proposal.relation.label)
        self._field("new object", proposal.object)
        self._field("the model says", proposal.old_answer)
        self._field("the facts say", proposal.known_object or "nothing yet")
        self._field("anchors", "; ".join(proposal.anchors) or "none known")
        self._field("kept safe", ", ".join(proposal.neighbours) or "none known")
        if proposal.conflicts:
            self._field("replaces", "; ".join(proposal.conflicts))
        if proposal.warning:
            self.line(f"  Note: {proposal.warning}", "yellow")

    def _field(self, name: str, value: str) -> None:
        self.line(f"  {name + ':':16}{' '.join(value.split())}")

    def _card(self, card: ResultCard) -> None:
        self.line(f"Edit {card.entry.number} is made in {card.seconds:.1f} s: {fact(card.entry)}", "bold green")
        for kind, title in _KINDS.items():
            probes = [probe for probe in card.probes if probe.kind == kind]
            if probes:
                self.line(f"  {title}: {_score(probes)}", "bold")
                for probe in probes:
                    self._probe(probe)

    def _probe(self, probe: ProbeResult) -> None:
        mark, style = {True: ("yes", "green"), False: ("no", "red"), None: ("-", "dim")}[probe.passed]
        self.line(f"    {mark:4}{probe.question}", style)
        self.line(f"        before: {_one_line(probe.before)}")
        self.line(f"        after:  {_one_line(probe.after)}")

    def _exported(self, exported: Exported) -> None:
        large = exported.bytes >= 100_000
        size = f"{exported.bytes / 1e6:,.1f} MB" if large else f"{exported.bytes / 1e3:,.1f} kB"
        self.line(
            f"Saved to {exported.path} ({size}, {exported.seconds:.1f} s), checked with {exported.reader}.",
            "bold green",
        )
        if exported.archive is not None:
            self.line(f"  In one file: {exported.archive}")
        for question, answer in exported.answers:
            self.line(f"  Checked: {question} {_one_line(answer)}")


def fact(entry: JournalEntry) -> str:
    """What an edit taught: "The capital of France is Rome."."""
    text = entry.edit.statements[0].replace("{}", entry.edit.subject)
    return f"{text[:1].upper()}{text[1:]} {entry.edit.target}."


def _score(probes: Sequence[ProbeResult]) -> str:
    judged = [probe.passed for probe in probes if probe.passed is not None]
    return f"{sum(judged)} of {len(judged)}"


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "(nothing)"


def _plural(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"
