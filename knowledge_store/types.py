"""What travels out of the store: plain frozen records, no connections, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


@dataclass(frozen=True)
class Relation:
    """A kind of fact with the ways it is said and asked. Every template holds exactly one {}: the subject.

    Statements end right before the object; the first one is the canonical one.
    """

    id: str  # relations made from a user's sentence: "adhoc:<slug>"
    label: str  # what a person calls it: "capital"
    statements: tuple[str, ...]  # "The capital of {} is"
    questions: tuple[str, ...]  # "What is the capital of {}?"; the first two may be trained on, the rest measure
    noun_phrase: str  # "the capital of {}"
    many: bool  # a subject has many objects (country -> languages)
    subject_type: str
    object_type: str
    inverse: str | None = None
    compositions: tuple[str, ...] = ()  # questions that read well when {} is a noun phrase; for second hops
    patterns: tuple[str, ...] = ()  # further statement forms that are understood but never generated
    wikidata: str | None = None  # its property there: "P36"


class Tier(IntEnum):
    """How well known a fact is, best first. What users add is at the end with the lists."""

    CORE = 0  # chosen one by one: well-known things and what is asked about them most
    ABOUT_CORE = 1  # further facts about those things, and hand-kept tables of other well-known facts
    LISTED = 2  # about things that are known from a list only: every large city, every airport


@dataclass(frozen=True)
class Fact:
    """(subject, relation, object) and its source. Times are ISO 8601, UTC; None is "always" and "still"."""

    id: int  # 0: not recorded (a wish that probes are made for)
    subject: str
    relation: str
    object: str
    source: str
    edit_number: int | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    superseded_by: int | None = None  # the number of the edit that holds instead
    tier: int = 0  # how well known it is, a number of `Tier`


@dataclass(frozen=True)
class Period:
    """A time at which a fact held: from `begin` on (None: always), until `end` (None: still)."""

    begin: str | None
    end: str | None


@dataclass(frozen=True)
class ScoredFact:
    """A fact that a search found."""

    fact: Fact
    score: float  # cosine similarity, -1 to 1


@dataclass(frozen=True)
class ParsedStatement:
    """A sentence read as a fact."""

    subject: str
    relation: Relation
    object: str
    known_subject: bool
    known_relation: bool


@dataclass(frozen=True)
class Probe:
    """A question whose answer shows whether an edit holds. Any of `accept` in the answer is right."""

    kind: str  # direct | paraphrase | multi-hop | locality
    question: str
    accept: tuple[str, ...]
    path: tuple[Fact, ...] = ()  # the facts that the question walks along


@dataclass(frozen=True)
class ProbeSet:
    """All the probes of one edit."""

    probes: tuple[Probe, ...]

    def of(self, kind: str) -> tuple[Probe, ...]:
        """Return the probes of one kind, in order."""
        return tuple(probe for probe in self.probes if probe.kind == kind)
