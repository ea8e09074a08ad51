"""The shape that every editing method has: a session on one model, in which edits are applied, one call or many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from steam_engine.types import CancelToken, FactEdit, ProgressCallback


@dataclass(frozen=True)
class Outcome:
    """What became of one edit of an `apply` call."""

    edit: FactEdit
    error: str | None = None  # why it was refused; the model is then as if it had not been asked for
    seconds: float = 0.0  # the call's time, divided by its number of edits
    steps: int = 0  # optimisation steps; 0 where a method has none


class Session(Protocol):
    """One model with the edits so far. Every `apply` adds to what is there; a replaced fact's edit is taken out."""

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """Applies the edits of one call jointly, where the method can.

        Returns:
            An outcome for every edit, in order. A refused edit is an outcome with an `error`, not an exception.

        Raises:
            EditCancelledError: `cancel` was set; the model is as before the call.
        """
        ...

    def prompt(self, question: str) -> str:
        """What to ask the model instead of `question`: itself, except for a method that works by prompting."""
        ...


class Method(Protocol):
    """A way of editing one loaded model."""

    name: str

    def session(self) -> AbstractContextManager[Session]:
        """Starts from the unedited model; when it ends, however it ends, the weights are bit-identical to before."""
        ...
