"""What happens when somebody says something: a reply, a command, an edit; told as events."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

from assistant import commands, lookup
from assistant.briefing import brief, edit_sentence, known_objects
from assistant.changes import ChangeLog
from assistant.conversation import Conversation, Message
from assistant.errors import NothingPendingError
from assistant.events import (
    EditDone,
    Event,
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
from assistant.exporting import export
from assistant.host import ModelHost, SamplingOptions
from assistant.probing import judge
from assistant.proposal import EditProposal, ResultCard
from assistant.proposing import Proposer
from knowledge_store.store import KnowledgeStore
from knowledge_store.types import Relation
from steam_engine.errors import AmendError
from steam_engine.types import JournalEntry, Progress

T = TypeVar("T")


class Assistant:
    """Serves any number of conversations on one model.

    Args:
        host: owner of the model.
        store: what is known.
        exports: directory that exports are written to.
        archives: whether an export is also packed into one file.
    """

    def __init__(self, host: ModelHost, store: KnowledgeStore, exports: Path, archives: bool = True) -> None:
        self._host = host
        self._store = store
        self._exports = exports
        self._archives = archives
        self._changes = ChangeLog()
        self._proposer = Proposer(host, store)
        self._options = SamplingOptions()

    # -- what front ends show -----------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The model's name, for people."""
        return self._host.loaded.name

    def journal(self) -> tuple[JournalEntry, ...]:
        """All edits in order."""
        return self._host.entries

    def relations(self) -> tuple[Relation, ...]:
        """The relations that an edit can be about."""
        return self._store.relations()

    # -- talking ------------------------------------------------------------------------------------

    def respond(self, conversation: Conversation, text: str, cancel: threading.Event | None = None) -> Iterator[Event]:
        """Answer a message or carry out a command. What cannot be done is a `Failure`, never an exception.

        Setting `cancel` ends a reply at the next token (what was said is kept), and an edit at the next step.
        """
        cancel = cancel or threading.Event()
        try:
            yield from self._catch_up(conversation)
            yield from self._carry_out(conversation, commands.parse_message(text), cancel)
        except AmendError as problem:
            yield Failure(str(problem))

    def _carry_out(
        self, conversation: Conversation, command: commands.Command, cancel: threading.Event
    ) -> Iterator[Event]:
        match command:
            case commands.Say(text=text):
                yield from self._reply(conversation, text, cancel)
            case commands.EditSentence(sentence=said):
                yield from self._offer(conversation, self._proposer.from_sentence(said, cancel))
            case commands.EditParts(subject=subject, relation=relation, object=object):
                yield from self._offer(conversation, self.propose(subject, relation, object, cancel))
            case commands.Apply():
                yield from self.apply(conversation, self._pending(conversation), cancel)
            case commands.Cancel():
                proposal = self._pending(conversation)
                conversation.pending = None
                yield Notice(f"Not applied: {proposal.statement}")
            case commands.Undo(number=number):
                yield from self._undo(conversation, number, cancel)
            case commands.Redo(number=number):
                yield from self._redo(conversation, number, cancel)
            case commands.History():
                yield lookup.history(self._host.entries)
            case commands.SearchFacts(query=query):
                yield lookup.facts(self._store, query)
            case commands.Export(format=format, name=name):
                steps = export(self._host, self._exports, format, name, self._archives, cancel)
                yield (yield from _working(steps))
            case commands.Help():
                yield lookup.help_text()

    def _reply(self, conversation: Conversation, text: str, cancel: threading.Event) -> Iterator[Event]:
        started = time.perf_counter()
        news: list[Event] = []

        def messages() -> tuple[Message, ...]:
            news.extend(self._catch_up(conversation))  # changes made while this waited for the model
            return (*conversation.visible_messages(), Message("user", text))

        pieces = self._host.stream(messages, self._options, cancel)
        said: list[str] = []
        tokens = 0
        try:
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    tokens = end.value
                    break
                if not said:
                    yield from news
                said.append(piece)
                yield TextPiece(piece)
        finally:  # also when the front end goes away in the middle
            pieces.close()
            answer = "".join(said).strip()
            if answer:
                conversation.add_exchange(text, answer)
        yield ReplyDone(answer, tokens, time.perf_counter() - started)

    # -- proposing ----------------------------------------------------------------------------------

    def propose(
        self, subject: str, relation: str | Relation, object: str, cancel: threading.Event | None = None
    ) -> EditProposal:
        """Look at an edit before it is made; see `Proposer.from_parts`. Raises AmendError."""
        return self._proposer.from_parts(subject, relation, object, cancel)

    def _offer(self, conversation: Conversation, proposal: EditProposal) -> Iterator[Event]:
        conversation.pending = proposal
        yield ProposalReady(proposal)

    def _pending(self, conversation: Conversation) -> EditProposal:
        if conversation.pending is None:
            raise NothingPendingError(
                "No edit is waiting; propose one with /edit, for example: /edit The capital of France is Rome"
            )
        return conversation.pending

    # -- changing -----------------------------------------------------------------------------------

    def apply(
        self, conversation: Conversation, proposal: EditProposal, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """Make the edit: `Working` steps, `EditDone`, and `TurnsAmended` when earlier turns became stale.

        What cannot be done is a `Failure`; then nothing has changed.
        """
        try:
            yield from self._apply(conversation, proposal, cancel or threading.Event())
        except AmendError as problem:
            yield Failure(str(problem))

    def _apply(self, conversation: Conversation, proposal: EditProposal, cancel: threading.Event) -> Iterator[Event]:
        subject, relation, object = proposal.subject, proposal.relation, proposal.object
        yield from _working(self._host.prepare(cancel))
        started = time.perf_counter()
        yield Working(Progress("Asking the model before the edit", 0, 0))
        probes = self._store.probes(subject, relation, object).probes
        questions = [probe.question for probe in probes]
        before = self._host.answer(questions, cancel=cancel)
        probing = time.perf_counter() - started
        edit = brief(self._store, subject, relation, object)

        def record(entry: JournalEntry) -> None:
            outdated = self._outdated_by(entry, relation)
            self._store.record_edit(entry.number, subject, relation, object)
            sync(self._host, self._store)  # an earlier edit that this one replaced holds no longer
            self._changes.note(entry.edit, outdated)

        entry = yield from _working(self._host.edit(edit, cancel, record))
        conversation.pending = None
        seconds = time.perf_counter() - started - probing
        yield Working(Progress("Asking the model after the edit", 0, 0))
        asked = time.perf_counter()
        after = self._host.answer(questions)
        probing += time.perf_counter() - asked
        yield EditDone(ResultCard(entry, judge(probes, before, after), seconds, probing))
        yield from self._catch_up(conversation)

    def _undo(self, conversation: Conversation, number: int | None, cancel: threading.Event) -> Iterator[Event]:
        def record(entry: JournalEntry) -> None:
            sync(self._host, self._store)
            self._changes.note(entry.edit, (entry.edit.target,))

        entry = self._host.undo(number, cancel, record)
        amended = list(self._catch_up(conversation))
        yield Undone(entry, sum(event.count for event in amended))
        yield from amended

    def _redo(self, conversation: Conversation, number: int | None, cancel: threading.Event) -> Iterator[Event]:
        def record(entry: JournalEntry) -> None:
            outdated = self._outdated_by(entry, self._store.relation(entry.edit.relation))
            sync(self._host, self._store)
            self._changes.note(entry.edit, outdated)

        entry = self._host.redo(number, cancel, record)
        amended = list(self._catch_up(conversation))
        yield Redone(entry, sum(event.count for event in amended))
        yield from amended

    # -- stale turns --------------------------------------------------------------------------------

    def import_journal(self, path: Path, replace: bool, cancel: threading.Event) -> Iterator[Event]:
        """Take the edits of an exported journal into the weights; see `steam_engine.importing`.

        Raises:
            AmendError: nothing has changed, or the message says what has.
        """
        found = yield from _working(
            self._host.import_journal(path, replace, cancel, lambda: sync(self._host, self._store))
        )
        rows = [(str(e.number), edit_sentence(e.edit)) for e in found.entries]
        rows += [("refused", f"{edit_sentence(edit)} {reason}") for edit, reason in found.refused]
        text = f"{len(found.entries)} of {len(rows)} edits of {path} are in the weights now."
        if found.made_anew:
            text += f" They were made anew, since {found.made_anew}."
        yield Notice(text, ("edit", "fact"), tuple(rows))

    def _outdated_by(self, entry: JournalEntry, relation: Relation) -> tuple[str, ...]:
        """What the store, which does not know of the entry yet, says in its place."""
        known = () if relation.many else known_objects(self._store, entry.edit.subject, relation)
        return tuple(name for name in known if name.casefold() != entry.edit.target.casefold())

    def _catch_up(self, conversation: Conversation) -> Iterator[TurnsAmended]:
        count = self._changes.catch_up(conversation)
        if count:
            yield TurnsAmended(count)


def sync(host: ModelHost, store: KnowledgeStore) -> None:
    """Make the store's edits those that are in the weights; the journal is the truth."""
    store.sync_edits({e.number: (e.edit.subject, e.edit.relation, e.edit.target) for e in host.active})


def _working(steps: Generator[Progress, None, T]) -> Generator[Event, None, T]:
    """The same steps as events."""
    try:
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            yield Working(progress)
    finally:
        steps.close()
