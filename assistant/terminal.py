"""Chat in a terminal, or line by line from a pipe: the same commands and events as the page."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from assistant.assistant import Assistant
from assistant.conversation import Conversation
from assistant.events import Event, Failure, ProposalReady
from assistant.guard import guarded
from assistant.proposal import EditProposal
from assistant.terminal_view import TerminalView
from steam_engine.errors import AmendError


def chat(assistant: Assistant, yes: bool, source: TextIO | None = None, out: TextIO | None = None) -> None:
    """Talk until the input ends.

    Args:
        assistant: answers.
        yes: apply proposed edits without asking.
        source, out: default to stdin and stdout. Where `source` is not a terminal every line of it is a
            message and is echoed; nothing is asked.
    """
    source = source or sys.stdin
    out = out or sys.stdout
    for stream in (source, out):
        if isinstance(stream, io.TextIOWrapper):  # never fail on a character that cannot be shown
            stream.reconfigure(errors="replace")
    if source.isatty():
        _Session(assistant, yes, TerminalView(out, out.isatty())).ask()
    else:
        _Session(assistant, yes, TerminalView(out, tty=False)).read(source)


def export(assistant: Assistant, format: str, name: str, out: TextIO | None = None) -> bool:
    """Take the model away and say how it went on `out` (default: stdout). Returns whether it worked."""
    out = out or sys.stdout
    session = _Session(assistant, False, TerminalView(out, out.isatty()))
    return session.command(f"/export {format} {name}")


def take_in(assistant: Assistant, journal: Path, replace: bool, out: TextIO | None = None) -> bool:
    """Import an exported journal and say how it went on `out` (default: stdout). Returns whether it worked."""
    out = out or sys.stdout
    session = _Session(assistant, False, TerminalView(out, out.isatty()))
    return session.carry_out(lambda cancel: assistant.import_journal(journal, replace, cancel))


class _Session:
    """One conversation in one terminal."""

    def __init__(self, assistant: Assistant, yes: bool, view: TerminalView) -> None:
        self._assistant = assistant
        self._yes = yes
        self._view = view
        self._conversation = Conversation()
        self._interactive = False
        self._failed = False  # the last message

    def ask(self) -> None:
        """Messages from a person who is looking."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # arrow keys and history in input()
        self._interactive = True
        self._view.line(f"You are talking to {self._assistant.model_name}. /help lists the commands, Ctrl-D ends.")
        while True:
            try:
                message = input("> ")
            except KeyboardInterrupt:
                self._view.line("\nCtrl-D ends.")
            except EOFError:
                self._view.line()
                return
            else:
                if message.strip():
                    self._say(message)

    def read(self, source: TextIO) -> None:
        """One message a line; empty lines are skipped."""
        for raw in source:
            message = raw.strip()
            if message:
                self._view.line(f"> {message}")
                self._say(message)

    def command(self, message: str) -> bool:
        """One message that is no edit. Returns whether it was carried out."""
        self._say(message)
        return not self._failed

    def carry_out(self, start: Callable[[threading.Event], Iterator[Event]]) -> bool:
        """Something that is no message. Returns whether it worked."""
        self._follow(start)
        return not self._failed

    def _say(self, message: str) -> None:
        proposal = self._follow(lambda cancel: self._assistant.respond(self._conversation, message, cancel))
        if proposal is not None:
            self._decide(proposal)

    def _follow(self, start: Callable[[threading.Event], Iterator[Event]]) -> EditProposal | None:
        """Show events; Ctrl-C stops what is going on, not the program. Returns a new proposal, if any."""
        proposal = None
        self._failed = False
        with _interrupts() as cancel:
            try:
                for event in guarded(start(cancel)):
                    self._view.show(event)
                    self._failed = self._failed or isinstance(event, Failure)
                    if isinstance(event, ProposalReady):
                        proposal = event.proposal
            finally:
                self._view.close()
        return proposal

    def _decide(self, proposal: EditProposal) -> None:
        if self._yes:
            self._apply(proposal)
        elif self._interactive:
            self._confirm(proposal)
        else:
            self._view.line("Not applied: nobody can be asked here. --yes applies edits, and so does the line /apply.")

    def _apply(self, proposal: EditProposal) -> None:
        self._follow(lambda cancel: self._assistant.apply(self._conversation, proposal, cancel))

    def _confirm(self, proposal: EditProposal) -> None:
        current = proposal
        while True:
            try:
                answer = input("Apply it? [y]es, [N]o, [e]dit: ").strip().casefold()
                if answer in ("y", "yes"):
                    self._apply(current)
                    return
                if answer not in ("e", "edit"):
                    break
                current = self._revise(current)
                self._conversation.pending = current
            except (KeyboardInterrupt, EOFError):
                self._view.line()
                break
        self._say("/cancel")

    def _revise(self, proposal: EditProposal) -> EditProposal:
        """The same proposal with other words; as it was when they make no sense."""
        fields = (
            ("Subject", proposal.subject),
            ("Relation", proposal.relation.label),
            ("Object", proposal.object),
        )
        subject, relation, object = (input(f"{name} [{old}]: ").strip() or old for name, old in fields)
        same = relation == proposal.relation.label
        try:
            revised = self._assistant.propose(subject, proposal.relation if same else relation, object)
        except AmendError as problem:
            self._view.show(Failure(str(problem)))
            return proposal
        self._view.show(ProposalReady(revised))
        return revised


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second Ctrl-C interrupts as usual."""
    cancel = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    earlier = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, earlier)
