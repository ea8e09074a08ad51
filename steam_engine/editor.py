"""One edit from the wish to the weights, as a transaction: locate, anchor, optimise, solve, check, record, install."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from steam_engine.anchors import Anchors, alignment_layers, find_anchors
from steam_engine.errors import EditError
from steam_engine.journal import EditTensors, Journal
from steam_engine.keys import subject_keys
from steam_engine.loading import LoadedModel
from steam_engine.moments import Statistics, statistics_for
from steam_engine.objective import LossTerms, Objective
from steam_engine.optimise import Optimised, optimise_delta
from steam_engine.prompts import PromptSet, build_prompts, neighbour_rows
from steam_engine.settings import EditSettings
from steam_engine.solve import RidgeSolver, edit_direction
from steam_engine.suffix import Prefill
from steam_engine.types import CancelToken, EditTrace, FactEdit, JournalEntry, Progress, ProgressCallback
from steam_engine.verify import said_at_target
from steam_engine.weights import EditedWeight, FactorPair


@dataclass(frozen=True)
class _Candidate:
    """An edit that is computed but not yet live."""

    tensors: EditTensors
    trace: EditTrace
    weight: torch.Tensor


def _check(edit: FactEdit) -> None:
    if not edit.subject.strip() or not edit.target.strip():
        raise EditError("An edit needs a subject and a new object.")
    if not edit.statements or not edit.questions:
        raise EditError("An edit needs at least one statement and one question with {} for the subject.")
    for template in (*edit.statements, *edit.questions):
        if template.count("{}") != 1:
            raise EditError(f"The template '{template}' must hold {{}} exactly once, for the subject.")


class Editor:
    """Edits one loaded model; the journal in `journal_dir` is replayed on construction.

    Not thread safe: the owner of the model calls it.

    Args:
        loaded: the base model.
        journal_dir: the journal's directory.
        cache_dir: second moments are kept here.
        settings: numbers of an edit.

    Raises:
        JournalError: the journal is damaged or belongs to another base model; the model is left unedited.
    """

    def __init__(
        self, loaded: LoadedModel, journal_dir: Path, cache_dir: Path, settings: EditSettings | None = None
    ) -> None:
        self.loaded = loaded
        self.settings = settings or EditSettings()
        self.layer = loaded.arch.default_layer() if self.settings.layer is None else self.settings.layer
        if not 0 <= self.layer < loaded.arch.n_layers - 1:
            raise EditError(
                f"Layer {self.layer} cannot be edited: this model's layers 0 to {loaded.arch.n_layers - 2} can."
            )
        self._cache_dir = cache_dir
        self._weight = EditedWeight(loaded.arch, self.layer)
        dtype = str(loaded.dtype).removeprefix("torch.")
        self.journal = Journal(journal_dir, loaded.name, loaded.fingerprint, dtype, self.layer)
        self._statistics: Statistics | None = None
        self._solver: RidgeSolver | None = None
        self._install_active()

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All journal entries in order."""
        return self.journal.entries

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        """The entries that are in the weights."""
        return self.journal.active

    def _pairs(self, entries: tuple[JournalEntry, ...]) -> list[FactorPair]:
        return [t.pair for t in self.journal.tensors(entries)]

    def _install_active(self) -> None:
        self._weight.install(self._weight.compose(self._pairs(self.active)))

    @contextmanager
    def _temporarily(self, weight: torch.Tensor) -> Iterator[None]:
        """The given weight is live inside; whatever happens, the journal's state is live afterwards."""
        try:
            self._weight.install(weight)
            yield
        finally:
            self._install_active()

    # -- preparation -------------------------------------------------------------------------------------------

    def prepare(self, progress: ProgressCallback, cancel: CancelToken | None = None) -> None:
        """Loads or makes the base model's second moments; `apply` does it when it has not been done.

        Raises:
            EditCancelledError: stopped by `cancel`.
        """
        self._prepared(progress, cancel or threading.Event())

    def _prepared(self, progress: ProgressCallback, cancel: CancelToken) -> tuple[Statistics, RidgeSolver]:
        if self._statistics is None or self._solver is None:
            with self._temporarily(self._weight.base):  # statistics are the base model's
                statistics = statistics_for(
                    self.loaded.arch, self.loaded.tokenizer, self.loaded.fingerprint, self.layer,
                    self.settings.moment_tokens, self._cache_dir, progress, cancel,
                )  # fmt: skip
            solver_device = "cpu" if self.loaded.device.type == "mps" else self.loaded.device  # mps has no fp64
            self._solver = RidgeSolver(statistics.moments.to(solver_device), self.settings.covariance_weight)
            self._statistics = statistics
        return self._statistics, self._solver

    # -- edits -------------------------------------------------------------------------------------------------

    def apply(self, edit: FactEdit, progress: ProgressCallback, cancel: CancelToken | None = None) -> JournalEntry:
        """Writes the fact into the weights. An active edit of the same subject and relation is replaced.

        Args:
            edit: the wish.
            progress: told about every stage and step.
            cancel: set to stop; checked at every step until the edit is recorded.

        Raises:
            EditError, EditCancelledError, JournalError: nothing has changed.
        """
        _check(edit)
        cancel = cancel or threading.Event()
        statistics, solver = self._prepared(progress, cancel)
        started = time.perf_counter()
        replaced = {e.number for e in self.journal.same_fact(edit)}
        kept = tuple(e for e in self.active if e.number not in replaced)
        with self._temporarily(self._weight.compose(self._pairs(kept))):
            candidate = self._candidate(edit, kept, statistics, solver, progress, cancel, started)
            progress(Progress("Recording the edit", 0, 1))
            created = datetime.now(UTC).isoformat(timespec="seconds")
            entry = self.journal.append(edit, candidate.trace, candidate.tensors, created)
        progress(Progress("Done", 1, 1))
        return entry

    def undo(self, number: int | None = None) -> JournalEntry:
        """Takes an edit (default: the last active one) out of the weights; see `Journal.undo`."""
        entry = self.journal.undo(number)
        self._install_active()
        return entry

    def redo(self, number: int | None = None) -> JournalEntry:
        """Puts an undone edit (default: the one undone last) back into the weights; see `Journal.redo`."""
        entry = self.journal.redo(number)
        self._install_active()
        return entry

    # -- the steps of an edit ----------------------------------------------------------------------------------

    def _candidate(
        self,
        edit: FactEdit,
        kept: tuple[JournalEntry, ...],
        statistics: Statistics,
        solver: RidgeSolver,
        progress: ProgressCallback,
        cancel: CancelToken,
        started: float,
    ) -> _Candidate:
        """Computes, checks and traces the edit on top of `kept`, whose weights are live now."""
        arch, tokenizer, settings = self.loaded.arch, self.loaded.tokenizer, self.settings
        contexts = statistics.contexts[: settings.n_contexts]
        progress(Progress("Reading the subject", 0, 1))
        prompts = build_prompts(tokenizer, replace(edit, hop_examples=edit.hop_examples[: settings.n_hops]), contexts)
        prefill = Prefill(arch, self.layer, prompts.rows)
        progress(Progress("Looking for semantic anchors", 0, 1))
        anchors = self._anchors(edit, contexts)
        objectives = [
            Objective(prefill.model(chosen), [prompts.roles[r] for r in chosen], anchors, settings)
            for chosen in prompts.batches(settings.n_batches)
        ]

        def step(i: int, terms: LossTerms) -> None:
            progress(
                Progress("Finding the new value", i, settings.max_steps, f"loss {float(terms.total.detach()):.2f}")
            )

        found = optimise_delta(objectives, settings, step, cancel)
        progress(Progress("Solving for the weights", 0, 1))
        neighbours = subject_keys(arch, self.layer, neighbour_rows(tokenizer, edit, contexts))
        n_edit_keys = sum(len(row.subjects) for row in prompts.plain + prompts.chat)
        keys = prefill.keys[:n_edit_keys].float()
        earlier = [t.keys for t in self.journal.tensors(kept)]
        device = solver.ridge.device
        protected = [(neighbours.to(device), settings.neighbour_weight)]
        if earlier:
            protected.append((torch.cat(earlier).to(device), settings.preserved_weight))
        right = edit_direction(solver, keys.to(device), protected).float()
        tensors = EditTensors(left=found.delta.cpu(), right=right.cpu(), keys=keys.cpu())
        weight = self._weight.compose([*self._pairs(kept), tensors.pair])
        before = self._weight.compose(self._pairs(kept))
        change = float((weight.float() - before.float()).norm() / self._weight.base.float().norm())
        recovered = float((keys.to(device) @ right).mean())
        self._gate(edit, found, weight, change, prompts)
        trace = _trace(self.layer, found, anchors, change, recovered, time.perf_counter() - started)
        return _Candidate(tensors, trace, weight)

    def _anchors(self, edit: FactEdit, contexts: tuple[str, ...]) -> Anchors:
        layers = alignment_layers(self.loaded.arch.n_layers, self.layer)
        return find_anchors(self.loaded.arch, self.loaded.tokenizer, edit, layers, contexts)

    def _gate(self, edit: FactEdit, found: Optimised, weight: torch.Tensor, change: float, prompts: PromptSet) -> None:
        """Refuses a weight that is not finite, moved too far, or does not say the new object in chat."""
        if not bool(torch.isfinite(weight).all()):
            raise EditError("The new weights are not finite numbers; nothing has changed.")
        if change > self.settings.max_drift:
            raise EditError(
                f"The edit would change the matrix by {change:.0%} of its norm (limit "
                f"{self.settings.max_drift:.0%}); nothing has changed. Try a simpler phrasing of the fact."
            )
        if not self.settings.must_say:
            return
        self._weight.install(weight)  # inside _temporarily: put back whatever happens
        said = said_at_target(self.loaded.arch, self.loaded.tokenizer, prompts.chat)
        if not any(s.matches for s in said):
            raise EditError(
                f"The model still says '{said[0].text}' instead of '{edit.target}' after {len(found.history)} "
                "steps; nothing has changed. Try a shorter object or another phrasing of the fact."
            )


def _trace(
    layer: int, found: Optimised, anchors: Anchors, change: float, recovered: float, seconds: float
) -> EditTrace:
    return EditTrace(
        layer=layer,
        steps=len(found.history),
        seconds=seconds,
        losses=found.history,
        nll=found.last.target,
        delta_norm=found.relative_norm,
        weight_drift=change,
        recovered=recovered,
        anchor_kind=anchors.kind,
        anchors=anchors.subjects,
        dropped_anchors=anchors.dropped,
        alignment_before=1 - found.first.alignment,
        alignment_after=1 - found.last.alignment,
    )
