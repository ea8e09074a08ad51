"""What is shown before and after an edit: the proposal to confirm, and the card of what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from knowledge_store.types import Relation
from steam_engine.types import JournalEntry


@dataclass(frozen=True)
class EditProposal:
    """An edit that waits for a yes. Nothing has changed yet."""

    id: str  # unique in this process
    subject: str
    relation: Relation  # a new one is not saved before an edit is made with it
    object: str  # the new object
    statement: str  # the whole sentence: "The capital of France is Rome."
    question: str  # "What is the capital of France?"
    old_answer: str  # what the model answers to `question` now, in its own words
    known_object: str | None  # what the store says now
    anchors: tuple[str, ...]  # facts that already have the object, as sentences
    neighbours: tuple[str, ...]  # subjects that the edit takes care not to disturb
    conflicts: tuple[str, ...]  # facts that stop being true, as sentences
    warning: str | None  # one sentence, when the edit deserves a second look


@dataclass(frozen=True)
class ProbeResult:
    """One question, asked before and after the edit."""

    kind: str  # direct | paraphrase | multi-hop | locality
    question: str
    before: str
    after: str
    accept: tuple[str, ...]  # any of these in the answer is right
    passed: bool | None  # None: cannot be judged (a locality question that was wrong before)
    passed_before: bool | None  # None: it was not asked before


@dataclass(frozen=True)
class ResultCard:
    """What an edit did, in the model's own words."""

    entry: JournalEntry
    probes: tuple[ProbeResult, ...]
    seconds: float  # from the yes to the recorded edit, without the probes and what is done once for a model
    probe_seconds: float  # spent asking the probes, before and after
