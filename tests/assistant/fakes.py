"""A model host and a store that do as a test says, with the interfaces of the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from assistant.conversation import Message
from assistant.host import SamplingOptions
from knowledge_store.errors import UnknownRelationError
from knowledge_store.types import Fact, ParsedStatement, Probe, ProbeSet, Relation, ScoredFact
from steam_engine.errors import AmendError, EditCancelledError, NothingToUndoError
from steam_engine.types import EditTrace, FactEdit, JournalEntry, Progress

TRACE = EditTrace(
    layer=5, steps=7, seconds=1.5, losses=(2.0, 0.1), nll=0.1, delta_norm=1.0, weight_drift=0.01,
    recovered=0.99, anchor_kind="reference",
)  # fmt: skip

CAPITAL = Relation(
    id="capital",
    label="capital",
    statements=("The capital of {} is", "{}'s capital is", "The capital city of {} is"),
    questions=("What is the capital of {}?", "Which city is {}'s capital?", "Name the capital of {}."),
    noun_phrase="the capital of {}",
    many=False,
    subject_type="country",
    object_type="city",
)
COUNTRY = Relation(
    id="country",
    label="country",
    statements=("{} is in the country of", "The country of {} is", "{} lies in"),
    questions=("In which country is {}?", "Which country is {} in?", "Where is {}?"),
    noun_phrase="the country of {}",
    many=False,
    subject_type="city",
    object_type="country",
)
LANGUAGE = Relation(
    id="language",
    label="language",
    statements=("A language of {} is", "In {} people speak", "One language of {} is"),
    questions=("Which language is spoken in {}?", "What do people speak in {}?", "Name a language of {}."),
    noun_phrase="a language of {}",
    many=True,
    subject_type="country",
    object_type="language",
)


class FakeHost:
    """Answers from a table; an edit or an undo changes the table's "edited" part.

    Args:
        answers: question -> answer; unknown questions get "I do not know."
    """

    def __init__(self, answers: Mapping[str, str] | None = None) -> None:
        self.loaded = SimpleNamespace(name="Fake-1B")
        self.base = dict(answers or {})
        self.learnt: dict[int, dict[str, str]] = {}
        self.edits: list[FactEdit] = []
        self.seen: list[tuple[Message, ...]] = []
        self.entries: tuple[JournalEntry, ...] = ()
        self.pieces: list[str] = []
        self.fail: AmendError | None = None
        self.closed = 0
        self.before_reply: Callable[[], None] = lambda: None

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        return tuple(entry for entry in self.entries if entry.state == "active")

    def answer(
        self, questions: Sequence[str], max_new_tokens: int = 40, cancel: threading.Event | None = None
    ) -> tuple[str, ...]:
        said = dict(self.base)
        for entry in self.active:
            said |= self.learnt[entry.number]
        return tuple(said.get(question, "I do not know.") for question in questions)

    def stream(
        self, messages: Callable[[], Sequence[Message]], options: SamplingOptions, cancel: threading.Event
    ) -> Generator[str, None, int]:
        self.before_reply()  # what happens while this one waits for its turn
        read = tuple(messages())
        self.seen.append(read)
        count = 0
        try:
            for piece in self.pieces or [self.answer([read[-1].content])[0]]:
                if cancel.is_set():
                    break
                count += 1
                yield piece
        finally:
            self.closed += 1
        return count

    def prepare(self, cancel: threading.Event) -> Generator[Progress, None, None]:
        yield Progress("Getting to know the model (once)", 0, 1)

    def edit(
        self, edit: FactEdit, cancel: threading.Event, record: Callable[[JournalEntry], None]
    ) -> Generator[Progress, None, JournalEntry]:
        for step in range(2):
            yield Progress("Finding the new value", step, 2)
        if cancel.is_set():
            raise EditCancelledError("The edit was stopped; nothing has changed.")
        if self.fail is not None:
            raise self.fail
        number = len(self.entries) + 1
        replaced = [e for e in self.active if (e.edit.subject, e.edit.relation) == (edit.subject, edit.relation)]
        for old in replaced:
            self._set(replace(old, state="replaced"))
        entry = JournalEntry(
            number, edit, "active", "2026-01-02T03:04:05+00:00", TRACE, tuple(e.number for e in replaced)
        )
        self.edits.append(edit)
        said = [question.replace("{}", edit.subject) for question in edit.questions]
        self.learnt[number] = dict.fromkeys(said, f"It is {edit.target}.")
        self.entries += (entry,)
        try:
            record(entry)
        except AmendError:
            self._set(replace(entry, state="undone"))
            raise
        return entry

    def undo(self, number: int | None, cancel: threading.Event, record: Callable[[JournalEntry], None]) -> JournalEntry:
        entry = self._find("active", number)
        undone = replace(entry, state="undone")
        self._set(undone)
        for other in self.entries:
            if other.number in entry.replaces:
                self._set(replace(other, state="active"))
        self._note(undone, entry, record)
        return undone

    def redo(self, number: int | None, cancel: threading.Event, record: Callable[[JournalEntry], None]) -> JournalEntry:
        entry = self._find("undone", number)
        redone = replace(entry, state="active")
        self._set(redone)
        self._note(redone, entry, record)
        return redone

    def _note(self, entry: JournalEntry, before: JournalEntry, record: Callable[[JournalEntry], None]) -> None:
        try:
            record(entry)
        except AmendError:
            self._set(before)
            raise

    def _find(self, state: str, number: int | None) -> JournalEntry:
        found = [e for e in self.entries if e.state == state and number in (None, e.number)]
        if not found:
            raise NothingToUndoError(f"There is no edit {number or ''} to change. See /history for the numbers.")
        return found[-1]

    def _set(self, changed: JournalEntry) -> None:
        self.entries = tuple(changed if e.number == changed.number else e for e in self.entries)


@dataclass
class FakeStore:
    """Three relations and a few facts in memory."""

    known: list[tuple[str, str, str]] = field(
        default_factory=lambda: [
            ("France", "capital", "Paris"),
            ("Germany", "capital", "Berlin"),
            ("Italy", "capital", "Rome"),
            ("Rome", "country", "Italy"),
            ("Belgium", "language", "Dutch"),
        ]
    )
    edited: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    broken: AmendError | None = None

    def __post_init__(self) -> None:
        self._relations = {relation.id: relation for relation in (CAPITAL, COUNTRY, LANGUAGE)}

    def relations(self) -> tuple[Relation, ...]:
        return tuple(self._relations.values())

    def relation(self, id: str) -> Relation:
        if id not in self._relations:
            raise UnknownRelationError(f"There is no relation '{id}'.")
        return self._relations[id]

    def find_relation(self, text: str) -> Relation | None:
        return self._relations.get(text.casefold())

    def ad_hoc_relation(self, noun: str | None, statement: str | None) -> Relation:
        made = Relation(
            f"adhoc:{noun}", str(noun), (f"The {noun} of {{}} is",) * 3,
            (f"What is the {noun} of {{}}?",) * 3, f"the {noun} of {{}}", False, "thing", "thing",
        )  # fmt: skip
        return self._relations.get(made.id, made)

    def aliases(self, name: str) -> tuple[str, ...]:
        return ("FR", "French Republic") if name == "France" else ()

    def facts(self, subject: str | None = None, relation: str | None = None, limit: int = 100) -> tuple[Fact, ...]:
        edited = [(*fact, number) for number, fact in self.edited.items()]
        hidden = {fact[:2] for fact in self.edited.values()}
        rows = [(*fact, None) for fact in self.known if fact[:2] not in hidden or fact[1] == "language"] + edited
        return tuple(
            Fact(i, s, r, o, "test", number)
            for i, (s, r, o, number) in enumerate(rows, 1)
            if subject in (None, s) and relation in (None, r)
        )

    def search(self, query: str, k: int = 8) -> tuple[ScoredFact, ...]:
        words = query.casefold().split()
        return tuple(ScoredFact(f, 0.9) for f in self.facts() if any(w in f.subject.casefold() for w in words))[:k]

    def parse(self, sentence: str) -> ParsedStatement | None:
        text = sentence.rstrip(".")
        for relation in self._relations.values():
            head, _, tail = relation.statements[0].partition("{}")
            if text.startswith(head) and tail and tail + " " in text[len(head) :]:
                subject, _, object = text[len(head) :].partition(tail + " ")
                return ParsedStatement(subject, relation, object, bool(self.facts(subject)), True)
        if text.startswith("The mascot of "):
            subject, _, object = text.removeprefix("The mascot of ").partition(" is ")
            unsaved = replace(CAPITAL, id="adhoc:mascot", label="mascot")
            return ParsedStatement(subject, unsaved, object, False, False)
        return None

    def canonical_subject(self, text: str, relation: Relation) -> str:
        return next((s for s, _, _ in self.known if s.casefold() == text.casefold()), text)

    def canonical_object(self, text: str, relation: Relation) -> str:
        return next((o for _, _, o in self.known if o.casefold() == text.casefold()), text)

    def references(self, relation: Relation, object: str, exclude_subject: str, limit: int = 6) -> tuple[Fact, ...]:
        return tuple(f for f in self.facts() if f.object == object and f.subject != exclude_subject)

    def neighbours(
        self, relation: Relation, subject: str, limit: int = 15, object: str | None = None
    ) -> tuple[str, ...]:
        return tuple(f.subject for f in self.facts(relation=relation.id) if f.subject != subject and f.object != object)

    def conflicts(self, subject: str, relation: Relation, object: str) -> tuple[Fact, ...]:
        return tuple(f for f in self.facts(subject, relation.id) if not relation.many and f.object != object)

    def probes(self, subject: str, relation: Relation, object: str, seed: int = 0) -> ProbeSet:
        wish = Fact(0, subject, relation.id, object, "edit")
        direct = [Probe("direct", q.replace("{}", subject), (object,), (wish,)) for q in relation.questions[:2]]
        others = [Probe("paraphrase", relation.questions[2].replace("{}", subject), (object,), (wish,))]
        near = [f for f in self.facts(relation=relation.id) if f.subject != subject and f.object != object]
        stay = [Probe("locality", relation.questions[0].replace("{}", f.subject), (f.object,), (f,)) for f in near]
        return ProbeSet((*direct, *others, *stay))

    def hop_examples(self, subject: str, relation: Relation, object: str) -> tuple[Probe, ...]:
        wish = Fact(0, subject, relation.id, object, "edit")
        return tuple(
            Probe("multi-hop", f"In which country is the capital of {name}?", (f.object,), (wish, f))
            for f in self.facts(object)
            for name in (subject, "somewhere")
        )

    def record_edit(self, edit_number: int, subject: str, relation: Relation, object: str) -> Fact:
        if self.broken is not None:
            raise self.broken
        self._relations.setdefault(relation.id, relation)
        self.edited[edit_number] = (subject, relation.id, object)
        return Fact(99, subject, relation.id, object, "edit", edit_number)

    def sync_edits(self, active: Mapping[int, tuple[str, str, str]]) -> None:
        self.edited = dict(active)
