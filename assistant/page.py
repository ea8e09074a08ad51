"""The web page: chat on the left, what the model was taught on the right. Wires the two, no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from assistant import page_cards as cards
from assistant.events import Event, Exported, Failure, Notice, ProposalReady, TextPiece, Working
from assistant.guard import guarded
from assistant.page_journal import journal
from assistant.page_parts import Parts, lay_out
from assistant.page_serve import serve_blocks
from assistant.page_session import PageSession
from assistant.page_transcript import live, transcript
from assistant.proposal import EditProposal
from steam_engine.types import Progress

if TYPE_CHECKING:
    from assistant.assistant import Assistant

_PAINT_SECONDS = 0.06  # how often a growing reply is redrawn
_JOURNAL_SECONDS = 4.0  # how often a page looks whether another one has changed the model

Update = dict[Any, Any]  # Gradio component -> its new value
Fields = tuple[str, str, str]  # subject, relation, object as they stand on the card


def build_page(assistant: Assistant, exports: Path) -> gr.Blocks:
    """The page as Gradio Blocks. `exports` is where checkpoints are written."""
    with gr.Blocks(title="Amend", analytics_enabled=False, fill_width=True) as blocks:
        parts = lay_out(assistant.model_name, sorted({relation.label for relation in assistant.relations()}))
        _Page(assistant, parts).wire(blocks)
    return blocks


def serve(
    assistant: Assistant, exports: Path, host: str, port: int, open_browser: bool, allowed_hosts: Sequence[str] = ()
) -> None:
    """Serve the page until Ctrl+C. Raises PortInUseError or AddressError (both AmendError) when it cannot."""
    serve_blocks(build_page(assistant, exports), exports, host, port, open_browser, allowed_hosts)


def _beside(event: Event) -> str:
    """An event of an export as HTML for its place beside the chat; "" for one that shows nothing there."""
    match event:
        case Working(progress=step):
            return cards.progress(step)
        case Exported():
            return cards.export(event)
        case Failure(message=message):
            return cards.failure(message)
        case Notice():
            return cards.notice(event)
    return ""


def _fields(subject: str, relation: str | None, new: str) -> Fields:
    return subject.strip(), (relation or "").strip(), new.strip()


class _Page:
    """The handlers of one page; what belongs to one tab lives in its PageSession.

    Gradio's browser side changes an update in place when the next one of the same handler comes quickly, before it
    has looked at the first. So a handler's updates are plain values, which cannot be changed in place, except for
    those of `_switches`, which are complete every time.
    """

    def __init__(self, assistant: Assistant, parts: Parts) -> None:
        self._assistant = assistant
        self._parts = parts

    # ------------------------------------------------------------------ wiring

    def wire(self, blocks: gr.Blocks) -> None:
        """Tie every control to its handler. Must run inside the Blocks."""
        parts = self._parts
        everything = parts.all()
        fields = [parts.subject, parts.relation, parts.object]
        common: dict[str, Any] = {
            "show_progress": "hidden",
            "api_visibility": "private",
            "concurrency_limit": None,  # the model's owner decides whose turn it is
        }
        gr.on([blocks.load], self.opened, parts.session, everything, **common)
        gr.on(
            [parts.message.submit, parts.send.click],
            self.say,
            [parts.session, parts.message, *fields],
            everything,
            trigger_mode="multiple",  # the session itself refuses a second message while it is busy
            **common,
        )
        parts.transcript.click(self.pressed, parts.session, everything, **common)
        parts.journal.click(self.pressed, parts.session, everything, **common)
        parts.apply.click(self.apply, [parts.session, *fields], everything, **common)
        gr.on(
            [parts.recheck.click, parts.object.submit, parts.subject.submit],
            self.recheck,
            [parts.session, *fields],
            everything,
            **common,
        )
        parts.dismiss.click(self.dismiss, parts.session, everything, **common)
        parts.stop.click(self.stop, parts.session, None, queue=False, **common)
        gr.on(
            [parts.export.click, parts.export_name.submit],
            self.export,
            [parts.session, parts.export_format, parts.export_name],
            everything,
            **common,
        )
        timer = gr.Timer(_JOURNAL_SECONDS)
        seen = [parts.transcript, parts.journal]
        timer.tick(self.look_again, parts.session, seen, queue=False, **common)

    # ---------------------------------------------------------------- handlers

    def opened(self, session: PageSession | None) -> Update:
        """A tab was opened."""
        session = session or PageSession()
        return {self._parts.session: session, **self._paint(session)}

    def say(
        self, session: PageSession | None, text: str, subject: str = "", relation: str | None = None, new: str = ""
    ) -> Iterator[Update]:
        """A message or a command was sent; the card's fields are those that a typed /apply means."""
        session = session or PageSession()
        text = text.strip()
        if not text or session.busy:
            yield self._nothing(session)
            return
        shown = session.proposal
        session.begin(text)
        yield {
            self._parts.session: session,
            self._parts.message: "",
            **self._paint(session),
        }
        if shown is not None and text.casefold() == "/apply":
            events = self._change(session, shown, _fields(subject, relation, new))
        else:
            events = self._assistant.respond(session.conversation, text, session.cancel)
        yield from self._follow(session, events)

    def pressed(self, session: PageSession | None, press: gr.EventData) -> Iterator[Update]:
        """A button inside a card or the journal was pressed."""
        session = session or PageSession()
        do, number = str(press.do), str(getattr(press, "number", ""))
        if do == "say":
            yield from self.say(session, str(press.text))
        elif do in ("undo", "redo") and number.isdecimal() and not session.busy:
            session.begin()
            yield {self._parts.session: session, **self._paint(session)}
            yield from self._follow(
                session, self._assistant.respond(session.conversation, f"/{do} {number}", session.cancel)
            )
        else:
            yield self._nothing(session)

    def apply(self, session: PageSession | None, subject: str, relation: str | None, new: str) -> Iterator[Update]:
        """The change on the card is to be made, with the fields as they are now."""
        yield from self._decide(session, self._change, _fields(subject, relation, new))

    def recheck(self, session: PageSession | None, subject: str, relation: str | None, new: str) -> Iterator[Update]:
        """The fields of the card were changed: look again at what the change would mean."""
        yield from self._decide(session, self._propose, _fields(subject, relation, new))

    def dismiss(self, session: PageSession | None) -> Update:
        """The proposal is not wanted."""
        session = session or PageSession()
        session.proposal = None
        return {self._parts.session: session, **self._paint(session)}

    def stop(self, session: PageSession | None) -> None:
        """Stop the reply or the change that is under way; it ends by itself at the next safe point."""
        if session is not None:
            session.cancel.set()

    def export(self, session: PageSession | None, format: str, name: str) -> Iterator[Update]:
        """The model is to be taken away; tells its story beside the chat."""
        session = session or PageSession()
        if session.exporting:
            yield self._nothing(session)
            return
        parts = self._parts
        session.exporting = True
        yield {
            parts.session: session,
            **self._switches(session),
            parts.export_status: cards.progress(Progress("Waiting for the model", 0, 0)),
        }
        command = f"/export {format} {name.strip()}".rstrip()
        shown = ""
        try:
            for event in guarded(self._assistant.respond(session.conversation, command)):
                shown = _beside(event) or shown
                yield {parts.export_status: shown, **self._switches(session)}
        finally:
            session.exporting = False
        yield self._switches(session)

    def look_again(self, session: PageSession | None) -> Update | Any:
        """Another page may have changed the model: show the journal as it is now."""
        if session is None or session.busy or session.states == self._states():
            return gr.skip()
        paint = self._paint(session)
        return {part: paint[part] for part in (self._parts.transcript, self._parts.journal)}

    # ----------------------------------------------------------------- helpers

    def _follow(self, session: PageSession, events: Iterator[Event]) -> Iterator[Update]:
        """Show a stream of events as they come; always ends with the tab ready for the next message."""
        parts = self._parts
        painted = 0.0
        try:
            for event in guarded(events):
                session.absorb(event)
                if isinstance(event, TextPiece):
                    if time.monotonic() - painted < _PAINT_SECONDS:
                        continue
                    painted = time.monotonic()
                    yield {parts.live: live(session), **self._switches(session)}
                else:
                    yield self._paint(session)
        finally:
            session.finish()
        update = self._paint(session)
        if session.proposal is not None and session.proposal is not session.filled:
            session.filled = session.proposal
            update |= self._fill(session.proposal)
        yield update
        # Gradio sends the last update once more when all is over, and by then somebody may be typing.
        yield self._nothing(session)

    def _decide(
        self,
        session: PageSession | None,
        act: Callable[[PageSession, EditProposal, Fields], Iterator[Event]],
        fields: Fields,
    ) -> Iterator[Update]:
        if session is None or session.proposal is None or session.busy:
            yield self._nothing(session)
            return
        session.begin()
        yield self._paint(session)
        yield from self._follow(session, act(session, session.proposal, fields))

    def _propose(self, session: PageSession, shown: EditProposal, fields: Fields) -> Iterator[Event]:
        subject, relation, new = fields
        same = relation == shown.relation.label
        yield ProposalReady(self._assistant.propose(subject, shown.relation if same else relation, new, session.cancel))

    def _change(self, session: PageSession, shown: EditProposal, fields: Fields) -> Iterator[Event]:
        if fields != (shown.subject, shown.relation.label, shown.object):
            yield from self._propose(session, shown, fields)
            shown = session.proposal or shown
        yield from self._assistant.apply(session.conversation, shown, session.cancel)

    def _nothing(self, session: PageSession | None) -> Update:
        """No change. Gradio empties every output of a generator that yields nothing at all."""
        session = session or PageSession()
        return {self._parts.session: session, **self._switches(session)}

    def _states(self) -> dict[int, str]:
        return {entry.number: entry.state for entry in self._assistant.journal()}

    def _paint(self, session: PageSession) -> Update:
        """Everything that is shown, except what the person is typing."""
        parts = self._parts
        session.states = self._states()
        return {
            parts.transcript: transcript(session),
            parts.live: live(session),
            parts.journal: journal(self._assistant.journal()),
            parts.proposal: cards.proposal(session.proposal) if session.proposal and not session.busy else "",
            **self._switches(session),
        }

    def _switches(self, session: PageSession) -> Update:
        """What can be seen and pressed."""
        parts = self._parts
        return {
            parts.send: gr.update(visible=not session.busy),
            parts.stop: gr.update(visible=session.busy),
            parts.export: gr.update(interactive=not session.exporting),
        }

    def _fill(self, proposal: EditProposal) -> Update:
        """The card's boxes, filled from a proposal."""
        parts = self._parts
        return {
            parts.subject: proposal.subject,
            parts.relation: proposal.relation.label,
            parts.object: proposal.object,
        }
