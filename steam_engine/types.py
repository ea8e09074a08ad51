"""What goes into the engine and what comes out of it: plain frozen records, no tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reference:
    """A fact that already has the new object: a place where the model itself keeps it (a semantic anchor)."""

    subject: str
    statement: str  # template with one {} for the subject, ends before the object: "The capital of {} is"
    question: str  # template with one {}: "What is the capital of {}?"
    object: str


@dataclass(frozen=True)
class ChatExample:
    """A question and the opening of its answer, whose next words are the fact that is asked for."""

    question: str
    answer: str  # a full answer sentence: "The capital of France is Rome."


@dataclass(frozen=True)
class FactEdit:
    """The wish that (subject, relation) now gives `target`.

    Templates hold exactly one {} which stands for the subject. Statements end right before the object.
    """

    subject: str
    relation: str  # relation id; the engine only compares it
    target: str  # the new object o*
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    old_object: str | None = None
    aliases: tuple[str, ...] = ()  # other names of the subject: their keys are edited too
    neighbours: tuple[str, ...] = ()  # other subjects of the relation, whose keys the solve preserves
    references: tuple[Reference, ...] = ()  # facts with object o*, for the semantic anchors
    hop_examples: tuple[ChatExample, ...] = ()  # composed training questions (never the measured ones)


@dataclass(frozen=True)
class Progress:
    """One step of something that takes a while. `total` 0 means that the length is not known."""

    stage: str  # a sentence fragment for the user: "Finding the new value"
    done: int
    total: int
    detail: str = ""


ProgressCallback = Callable[[Progress], None]
CancelToken = threading.Event


@dataclass(frozen=True)
class EditTrace:
    """What an edit measured on the way, for cards and plots."""

    layer: int
    steps: int
    seconds: float
    losses: tuple[float, ...]  # total loss per step
    nll: float  # of the new object's tokens, mean, nats
    delta_norm: float  # ||delta|| / ||value||
    weight_drift: float  # ||W' - W|| / ||W|| of the edited matrix
    recovered: float  # (mean over edited keys) <W' k - W k, delta> / ||delta||^2; 1 = the value is hit
    anchor_kind: str  # "reference" | "elicited" | "in-context" | "none"
    anchors: tuple[str, ...] = ()  # subjects whose residual stream makes the anchor
    dropped_anchors: tuple[tuple[str, str], ...] = ()  # (subject, why it was not used)
    alignment_before: float | None = None  # mean cosine(h, anchor) over layers
    alignment_after: float | None = None


@dataclass(frozen=True)
class JournalEntry:
    """One edit in the ordered record; "replaced" means by a later edit of the same fact."""

    number: int  # 1-based, never reused
    edit: FactEdit
    state: Literal["active", "undone", "replaced"]
    created: str  # ISO 8601, UTC
    trace: EditTrace
    replaces: tuple[int, ...] = ()  # numbers of the edits that this one replaced when it became active
    changed: int = 0  # the journal's count of state changes when this entry last changed state
