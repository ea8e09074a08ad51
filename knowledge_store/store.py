"""The knowledge store's front: one object that answers every question about what is known.

It can be used from several threads; one lock guards the connection and the index.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from knowledge_store import schema, seed
from knowledge_store.dates import moment
from knowledge_store.encoder import SentenceEncoder
from knowledge_store.errors import InvalidRelationError, UnknownRelationError
from knowledge_store.facts import FactTable, OnConflict, check_name
from knowledge_store.index import INDEX_FILE, FactIndex, text_number
from knowledge_store.parsing import StatementParser
from knowledge_store.phrasing import AD_HOC, relation_from_noun, relation_from_statement
from knowledge_store.probes import PROTECTED, ProbeMaker
from knowledge_store.text import key, render
from knowledge_store.types import Fact, ParsedStatement, Period, Probe, ProbeSet, Relation, ScoredFact, Tier

_LOG = logging.getLogger(__name__)

MEANING_THRESHOLD = 0.6  # cosine from which two names of a relation are taken for the same
ANCHORS_PER_RELATION = 3


def fact_text(relation: Relation, subject: str, object: str) -> str:
    """Return the sentence by which a fact is searched: "The capital of France is Paris."."""
    return f"{render(relation.statements[0], subject)} {object}."


class KnowledgeStore:
    """Facts and relations in one directory, with search by meaning. Made by `open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, index: FactIndex, encoder: SentenceEncoder) -> None:
        self._lock = threading.RLock()
        self._path = path
        self._connection = connection
        self._index = index
        self._encoder = encoder
        self._facts = FactTable(connection)
        self._relations = schema.load_relations(connection)
        self._by_number: dict[int, list[int]] = {}  # text number -> ids of the facts with that text
        self._texts: dict[int, str] = {}  # text number -> text, of those that have no vector yet
        self._relation_vectors: tuple[tuple[str, ...], NDArray[np.float32]] | None = None
        self._refresh()

    @classmethod
    def open(cls, directory: Path, encoder: SentenceEncoder | None = None) -> KnowledgeStore:
        """Open the store in `directory`; a new one is filled with the seed, an older one gets what the seed has more.

        The vector index is compared with the facts and repaired. The encoder is loaded at the first search.
        Raises StoreCorruptError, StoreUnwritableError or StoreBusyError when the facts file cannot be used; so does
        everything else that reads or writes facts.
        """
        encoder = encoder if encoder is not None else SentenceEncoder()
        path = directory / schema.FACTS_FILE
        with schema.clearly(path):
            connection = schema.connect(directory)
            try:
                facts = FactTable(connection)
                with facts.transaction():  # two programs may open a new store at the same time
                    if schema.meta(connection, "seed") != seed.digest():
                        facts.settle(seed.plant(connection))
                index = FactIndex(directory / INDEX_FILE, encoder.dimension)
                store = cls(path, connection, index, encoder)
                store._repair_index()
            except BaseException:
                connection.close()
                raise
        return store

    @contextmanager
    def _access(self) -> Iterator[None]:
        """The facts, for one thread at a time; what the disk refuses is a StoreError."""
        with self._lock, schema.clearly(self._path):
            yield

    @property
    def encoder(self) -> SentenceEncoder:
        """The encoder that searches use."""
        return self._encoder

    def close(self) -> None:
        """Release the files. The store cannot be used afterwards."""
        with self._access():
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- relations --------------------------------------------------------------------------------

    def relations(self) -> tuple[Relation, ...]:
        """Return all relations, in order of preference."""
        return tuple(self._relations.values())

    def relation(self, id: str) -> Relation:
        """Return a relation by id. Raises UnknownRelationError."""
        try:
            return self._relations[id]
        except KeyError:
            raise UnknownRelationError(
                f"There is no relation '{id}': choose a known one, or name a new one with a noun."
            ) from None

    def find_relation(self, text: str) -> Relation | None:
        """Return the relation that `text` names: by id, label or wording, else by meaning; else None."""
        exact = self._named_relation(text)
        if exact is not None or not key(text):
            return exact
        with self._access():
            if self._relation_vectors is None:
                ids, texts = [], []
                for relation in self._relations.values():
                    for name in (relation.label, relation.noun_phrase.replace("{}", "").strip()):
                        ids.append(relation.id)
                        texts.append(name)
                self._relation_vectors = (tuple(ids), self._encoder.encode(texts))
            ids_, vectors = self._relation_vectors
            scores = vectors @ self._encoder.encode([text])[0]
            best = int(np.argmax(scores))
            return self._relations[ids_[best]] if scores[best] >= MEANING_THRESHOLD else None

    def ad_hoc_relation(self, noun: str | None, statement: str | None) -> Relation:
        """Return the relation of a noun ("mascot") or a statement with {} ("{} lives in").

        A noun that names a known relation gives that one; a new one is saved with the first edit that has it.
        Raises InvalidRelationError.
        """
        if noun is not None and key(noun):
            relation = self._named_relation(noun) or relation_from_noun(noun)
        elif statement is not None and "{}" in statement:
            relation = relation_from_statement(statement)
        elif statement is not None and (parsed := self.parse(statement)) is not None:
            relation = parsed.relation
        else:
            raise InvalidRelationError(
                "Name the relation with a noun, or with a statement that has {} for the subject."
            )
        return self._relations.get(relation.id, relation)

    def _saved(self, relation: Relation) -> Relation:
        if relation.id not in self._relations:
            with self._facts.transaction():
                schema.insert_relation(self._connection, relation)
            self._relations[relation.id] = relation
            self._refresh()
        return self._relations[relation.id]

    def _refresh(self) -> None:
        """Make anew what is derived from the relations."""
        self._names = _relation_names(self._relations.values())
        self._parser = StatementParser(self._facts, self._relations.values(), self._named_relation)
        self._probe_maker = ProbeMaker(self._facts, self._relations)
        self._relation_vectors = None

    def _named_relation(self, text: str) -> Relation | None:
        if text in self._relations:
            return self._relations[text]
        id = self._names.get(_bare(text))
        return None if id is None else self._relations[id]

    # -- facts ------------------------------------------------------------------------------------

    def facts(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        current_only: bool = True,
        limit: int = 100,
        at: str | date | datetime | None = None,
    ) -> tuple[Fact, ...]:
        """Return the facts that fit, best-known first; names are understood in any spelling.

        `at` asks for what was known then (on a date: at its end), whatever `current_only` says.
        Raises InvalidFactError when it is not a date or a time.
        """
        then = None if at is None else moment(at, end_of_day=True)
        with self._access():
            return self._facts.find(subject, relation, object, current_only=current_only, at=then, limit=limit)

    def periods(self, fact_id: int) -> tuple[Period, ...]:
        """Return the times at which a fact held, in order. Raises UnknownFactError."""
        with self._access():
            return self._facts.periods(fact_id)

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return the other names of something, as "USA" for "the United States"."""
        with self._access():
            return self._facts.aliases(name)

    def add_facts(
        self, triples: Iterable[tuple[str, str, str]], source: str, on_conflict: OnConflict = "refuse"
    ) -> tuple[Fact, ...]:
        """Add (subject, relation id, object) facts, all or none of them.

        One that is there already is returned as it is. In a many-valued relation facts add up; in a single-valued
        one another object is refused, or the old fact is kept (and returned), or replaced.
        Raises UnknownRelationError, InvalidFactError and ConflictingFactError.
        """
        with self._access():
            with self._facts.transaction():
                added = tuple(
                    self._facts.add(subject, self.relation(relation), object, source, on_conflict=on_conflict)[0]
                    for subject, relation, object in triples
                )
            for fact in added:
                self._note_text(fact.id, fact.subject, fact.relation, fact.object)
            return added

    def remove_fact(self, fact_id: int) -> Fact:
        """End a fact that is not an edit's; it is kept as one that held. Raises UnknownFactError."""
        with self._access(), self._facts.transaction():
            return self._facts.remove(fact_id)

    def search(self, query: str, k: int = 8) -> tuple[ScoredFact, ...]:
        """Return the `k` facts that hold and are nearest in meaning, nearest first."""
        if not query.strip() or k <= 0:
            return ()
        with self._access():
            self._embed_missing()
            vector = self._encoder.encode([query])[0]
            reach = k * 2  # facts that no longer hold are in the index too
            while True:
                hits = self._index.search(vector, reach)
                facts = self._facts.by_ids([id for number, _ in hits for id in self._by_number.get(number, [])])
                found = [
                    ScoredFact(facts[id], min(score, 1.0))
                    for number, score in hits
                    for id in self._by_number.get(number, [])
                    if id in facts and facts[id].valid_to is None
                ]
                if len(found) >= k or len(hits) < reach:
                    return tuple(found[:k])
                reach *= 2

    # -- sentences --------------------------------------------------------------------------------

    def parse(self, sentence: str) -> ParsedStatement | None:
        """Return the fact that a sentence states, or None. A relation that is new is not saved."""
        with self._access():
            return self._parser.parse(sentence)

    def canonical_subject(self, text: str, relation: Relation) -> str:
        """Return how the store writes this subject: "the Eiffel Tower" for "eiffel tower"."""
        with self._access():
            self._parser.forget()
            return self._parser.subject(text, relation)[0]

    def canonical_object(self, text: str, relation: Relation) -> str:
        """Return how the store writes this object: "Rome" for "the city of rome"."""
        with self._access():
            self._parser.forget()
            return self._parser.object(text, relation)

    # -- what an edit needs -----------------------------------------------------------------------

    def references(self, relation: Relation, object: str, exclude_subject: str, limit: int = 4) -> tuple[Fact, ...]:
        """Return facts that have the object already: of the same relation first, best-known first.

        Facts of a lower tier than the relation's own best ones come last: an airport that is known from a list only
        is no reference for a city before its country is.
        """
        with self._access():
            own = self._facts.entity_keys(exclude_subject)
            found = [
                fact
                for fact in self._facts.find(object=object, limit=300)
                if key(fact.subject) not in own and fact.edit_number is None
            ]
            # The same name can be another kind of thing (Georgia): its facts would be false anchors.
            kin = [f for f in found if self._relations[f.relation].object_type == relation.object_type]
            order = {id: position for position, id in enumerate(self._relations)}
            best = self._facts.find(relation=relation.id, limit=1)
            usual = best[0].tier if best else Tier.CORE
            pool = sorted(
                kin or found,
                key=lambda f: (max(f.tier, usual), f.relation != relation.id, f.tier, order[f.relation]),
            )
            chosen: list[Fact] = []
            for cap in (ANCHORS_PER_RELATION, limit):
                for fact in pool:
                    taken = sum(other.relation == fact.relation for other in chosen)
                    if len(chosen) < limit and fact not in chosen and taken < cap:
                        chosen.append(fact)
            return tuple(sorted(chosen, key=pool.index))

    def neighbours(
        self, relation: Relation, subject: str, limit: int = PROTECTED, object: str | None = None
    ) -> tuple[str, ...]:
        """Return other subjects of the relation, best-known first.

        Never subjects that share the old object, or the new one when `object` is given; never edited ones.
        Where the relation has too few (a new one), the best-known things of its kind, or of any, follow.
        """
        with self._access():
            names = [fact.subject for fact in self._probe_maker.neighbours(relation, subject, object, limit)]
            if len(names) < limit:
                kinds = [relation.subject_type, *self._facts.entity_types(subject)]
                pool = [name for kind in kinds for name in self._facts.prominent(kind, limit * 2)]
                pool = pool or self._facts.prominent(None, limit * 2)
                taken = {key(name) for name in names} | self._facts.entity_keys(subject)
                if object is not None:
                    taken.add(key(object))
                taken |= {key(fact.subject) for fact in self._facts.find(relation=relation.id, limit=2000)}
                for name in pool:
                    if key(name) not in taken:
                        taken.add(key(name))
                        names.append(name)
            return tuple(names[:limit])

    def hops(self, object: str, limit: int = 8) -> tuple[Fact, ...]:
        """Return the facts that start at `object`: the second steps of a chain of reasoning."""
        with self._access():
            return self._probe_maker.hops(object)[:limit]

    def conflicts(self, subject: str, relation: Relation, object: str) -> tuple[Fact, ...]:
        """Return the facts that hold now and cannot hold together with this one."""
        if relation.many:
            return ()
        with self._access():
            objects = self._facts.entity_keys(object)
            return tuple(
                fact
                for fact in self._facts.find(subject=subject, relation=relation.id)
                if key(fact.object) not in objects
            )

    def probes(self, subject: str, relation: Relation, object: str, seed: int = 0) -> ProbeSet:
        """Return the questions that measure the edit; none of them is ever trained on but the direct ones."""
        with self._access():
            return self._probe_maker.probes(subject, relation, object, seed)

    def hop_examples(self, subject: str, relation: Relation, object: str) -> tuple[Probe, ...]:
        """Return composed questions for training; their second hops are never those of `probes`."""
        with self._access():
            return self._probe_maker.hop_examples(subject, relation, object)

    # -- edits ------------------------------------------------------------------------------------

    def record_edit(self, edit_number: int, subject: str, relation: Relation, object: str) -> Fact:
        """Write down that an edit made (subject, relation, object) true; what it contradicts is superseded.

        Raises InvalidFactError.
        """
        check_name("subject", subject)
        check_name("object", object)
        with self._access():
            relation = self._saved(relation)
            with self._facts.transaction():
                fact = self._facts.record_edit(edit_number, subject, relation, object)
            self._note_text(fact.id, fact.subject, fact.relation, fact.object)
            return fact

    def revoke_edit(self, edit_number: int) -> None:
        """Undo: the edit's fact ends, what it superseded holds again. Raises UnknownEditError."""
        with self._access(), self._facts.transaction():
            self._facts.set_revoked(edit_number, True)

    def restore_edit(self, edit_number: int) -> None:
        """Redo: the edit's fact holds again. Raises UnknownEditError."""
        with self._access(), self._facts.transaction():
            self._facts.set_revoked(edit_number, False)

    def sync_edits(self, active: Mapping[int, tuple[str, str, str]]) -> None:
        """Make the edits that hold exactly these: (subject, relation id, object) by number.

        Raises UnknownRelationError and changes nothing when a relation is neither known nor ad hoc.
        """
        with self._access():
            for _, relation_id, _ in active.values():
                if relation_id not in self._relations:
                    self._saved(self._from_id(relation_id))
            recorded = []
            with self._facts.transaction():
                known = self._facts.edits()
                for number in known.keys() - active.keys():
                    self._facts.set_revoked(number, True)
                for number, triple in sorted(active.items()):
                    if number in known and known[number][:3] == triple:
                        self._facts.set_revoked(number, False)
                    else:
                        subject, relation_id, object = triple
                        relation = self._relations[relation_id]
                        recorded.append(self._facts.record_edit(number, subject, relation, object))
            for fact in recorded:
                self._note_text(fact.id, fact.subject, fact.relation, fact.object)

    def _from_id(self, relation_id: str) -> Relation:
        """Make a relation whose facts file was lost: its id still has the words of its noun."""
        if not relation_id.startswith(AD_HOC):
            return self.relation(relation_id)
        return relation_from_noun(relation_id.removeprefix(AD_HOC).replace("-", " "))

    # -- the index --------------------------------------------------------------------------------

    def _note_text(self, id: int, subject: str, relation: str, object: str) -> None:
        """Remember the text of a fact; it gets its vector at the next search."""
        text = fact_text(self._relations[relation], subject, object)
        number = text_number(text)
        ids = self._by_number.setdefault(number, [])
        if id not in ids:
            ids.append(id)
        if number not in self._index:
            self._texts[number] = text

    def _repair_index(self) -> None:
        """Compare the index with the facts; drop what has no fact, add what is missing and was shipped."""
        identity = self._encoder.identity
        matches = schema.meta(self._connection, "index_encoder") == identity
        loaded = self._index.load(schema.meta(self._connection, "index_sha256") if matches else None)
        for id, subject, relation, object in self._facts.all_triples():
            self._note_text(id, subject, relation, object)
        orphans = self._index.numbers - self._by_number.keys()
        self._index.remove(orphans)
        shipped = seed.shipped_vectors(identity) if self._texts else {}
        ready = [number for number in self._texts if number in shipped]
        if ready:
            self._index.add(ready, np.stack([shipped[number] for number in ready]))
            for number in ready:
                del self._texts[number]
        if orphans or ready or not loaded:
            self._save_index()

    def _embed_missing(self) -> None:
        if self._texts:
            numbers = list(self._texts)
            self._index.add(numbers, self._encoder.encode([self._texts[number] for number in numbers]))
            self._texts.clear()
            self._save_index()

    def _save_index(self) -> None:
        """Keep the index where the disk lets: it is only a copy, and what is missing is added at the next start."""
        try:
            with self._facts.transaction():  # so that two programs never write the file at the same time
                digest = self._index.save()
                for name, value in (("index_sha256", digest), ("index_encoder", self._encoder.identity)):
                    self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        except (OSError, sqlite3.OperationalError) as error:
            _LOG.warning("The index of the facts could not be kept on the disk: %s", error)


def _bare(text: str) -> str:
    """Return the words that name a relation: "capital" for "the capital of", "located in" for "is ..."."""
    words = key(text.replace("_", " ").replace("{}", " "))
    return re.sub(r"^(?:is|are|was|were)\s+|\s+(?:of|is|are|was)$", "", words).strip()


def _relation_names(relations: Iterable[Relation]) -> dict[str, str]:
    """Return relation ids by every name; the first relation in the order keeps a name that several have."""
    relations = tuple(relations)
    names: dict[str, str] = {}
    for relation in relations:
        for name in (relation.id, relation.label):
            names.setdefault(_bare(name), relation.id)
    for relation in relations:
        for template in (relation.noun_phrase, *relation.statements, *relation.patterns):
            noun = re.match(r"(?:the )?(.+?) of \{\}(?: is| was)?$", template, re.IGNORECASE)
            possessive = re.match(r"\{\}'s (.+?) (?:is|was)$", template)
            start = re.match(r"\{\} (.+)$", template)
            for match in (noun, possessive, start):
                if match is not None:
                    names.setdefault(_bare(match[1]), relation.id)
            names.setdefault(_bare(template), relation.id)
    names.pop("", None)
    return names
