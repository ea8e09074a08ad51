"""Edits from the wish to the weights, as a transaction: locate, anchor, optimise, solve, check, record, install."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import torch

from steam_engine.anchors import alignment_layers
from steam_engine.corpora.registry import open_corpus
from steam_engine.errors import EditCancelledError, EditError
from steam_engine.insight import Insight, compare_streams, read_streams
from steam_engine.journal import EditTensors, Journal, NewEdit, pairs_by_layer
from steam_engine.keys import NeighbourKeys
from steam_engine.loading import LoadedModel
from steam_engine.locate import find_layer, found_layer
from steam_engine.moments import Statistics, statistics_of
from steam_engine.round import Bench, EditRound
from steam_engine.selftest import check_suffix
from steam_engine.settings import EditSettings
from steam_engine.solve import PRECISIONS, NullSpaceSolver, RidgeSolver, Solver, solve_device
from steam_engine.types import CancelToken, FactEdit, JournalEntry, Progress, ProgressCallback
from steam_engine.weights import EditedWeights, FactorPair


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
        CorpusError: the text for the statistics is not there.
    """

    def __init__(
        self, loaded: LoadedModel, journal_dir: Path, cache_dir: Path, settings: EditSettings | None = None
    ) -> None:
        self.loaded = loaded
        self.settings = settings or EditSettings()
        self._corpus = open_corpus(self.settings.statistics)
        self.layer = _known_layer(loaded, self.settings, cache_dir)
        self._cache_dir = cache_dir
        self._weights = EditedWeights(loaded.arch)
        self.journal = Journal(journal_dir, loaded.name, loaded.fingerprint, loaded.dtype_name)
        self._neighbours = NeighbourKeys(loaded.arch, self.layer)
        self._statistics: Statistics | None = None
        self._solver: Solver | None = None
        self.restore()

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All journal entries in order."""
        return self.journal.entries

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        """The entries that are in the weights."""
        return self.journal.active

    def active_pairs(self) -> dict[int, list[FactorPair]]:
        """What the active edits add to the base weights: layer -> factor pairs, in order."""
        return pairs_by_layer(self.journal.tensors(self.active))

    def restore(self) -> None:
        """Makes the weights those of the journal: the base plus the active edits."""
        self._install(self.journal.tensors(self.active))

    def _install(self, tensors: Sequence[EditTensors]) -> None:
        """Makes the base plus some edits live."""
        self._weights.install(self._weights.compose(pairs_by_layer(tensors)))
        self._neighbours.stand_on([part for edit in tensors for part in edit.layers if part.layer < self.layer])

    def insight(self, number: int, layer: int | None = None) -> Insight:
        """How an active edit moved its subject's residual stream; the weights are as before afterwards.

        Args:
            number: of the edit.
            layer: of the two-dimensional map; None takes the middle of the aligned layers.

        Raises:
            NothingToUndoError: there is no such active edit.
            EditError: there is no such layer.
        """
        entry = self.journal.find(number, "active", "look into")
        others = tuple(e for e in self.active if e.number != number)
        aligned = alignment_layers(self.loaded.arch.n_layers, self.layer)
        with self._temporarily(self.journal.tensors(others)):
            before = read_streams(self.loaded, entry.edit)
        after = read_streams(self.loaded, entry.edit, others=False)
        return compare_streams(before, after, aligned[len(aligned) // 2] if layer is None else layer)

    def clear(self) -> None:
        """Makes the base weights live, whatever the journal says: this editor is given up."""
        self._weights.install({})

    @contextmanager
    def _temporarily(self, tensors: Sequence[EditTensors]) -> Iterator[None]:
        """The base with the given edits is live inside; the journal's state is live afterwards, whatever happens."""
        try:
            self._install(tensors)
            yield
        finally:
            self.restore()

    # -- preparation -------------------------------------------------------------------------------------------

    def prepare(self, progress: ProgressCallback, cancel: CancelToken | None = None) -> None:
        """Loads or makes the base model's second moments; `apply` does it when it has not been done.

        Raises:
            EditCancelledError: stopped by `cancel`.
            CorpusError: the text for the statistics cannot be read, or is too short.
            UnsupportedModelError: the model's family is not known, and the engine does not fit it.
        """
        self._prepared(progress, cancel or threading.Event())

    @property
    def contexts(self) -> tuple[str, ...]:
        """Sentence openings that prompts begin with; empty before `prepare`."""
        return self._statistics.contexts[: self.settings.n_contexts] if self._statistics else ()

    def _prepared(self, progress: ProgressCallback, cancel: CancelToken) -> Solver:
        if self._statistics is None or self._solver is None:
            with self._temporarily(()):  # statistics are the base model's
                self._get_to_know(progress, cancel)
                wanted, layers = self.settings.moment_tokens, [self.layer]
                found = statistics_of(self.loaded, layers, wanted, self._cache_dir, progress, cancel, self._corpus)
            statistics = found[self.layer]
            precision = PRECISIONS[self.settings.solve_precision]
            where = solve_device(self.loaded.arch.device_of(self.layer), precision)
            moments, weight = statistics.moments.to(where), self.settings.covariance_weight
            if self.settings.null_space:
                self._solver = NullSpaceSolver(moments, self.settings.null_space, weight, precision)
            else:
                self._solver = RidgeSolver(moments, weight, precision)
            self._statistics = statistics
        return self._solver

    def _get_to_know(self, progress: ProgressCallback, cancel: CancelToken) -> None:
        """Tests the engine on a model of a family that nobody has tried, and finds the layer to edit."""
        if self.loaded.arch.is_known:
            return
        progress(Progress("Trying the engine on this kind of model", 0, 1))
        check_suffix(self.loaded, self.layer)
        if self.settings.layer is None:
            self.layer = find_layer(self.loaded, self._cache_dir, progress, cancel)
            self._neighbours = NeighbourKeys(self.loaded.arch, self.layer)

    # -- edits -------------------------------------------------------------------------------------------------

    def apply(self, edit: FactEdit, progress: ProgressCallback, cancel: CancelToken | None = None) -> JournalEntry:
        """Writes the fact into the weights. An active edit of the same subject and relation is replaced.

        Args:
            edit: the wish.
            progress: told about every stage and step.
            cancel: set to stop; checked at every step until the edit is recorded.

        Raises:
            EditError, EditCancelledError, JournalError, CorpusError: nothing has changed.
            UnsupportedModelError: see `prepare`.
        """
        (result,) = self.apply_batch([edit], progress, cancel)
        if isinstance(result, EditError):
            raise result
        return result

    def apply_batch(
        self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken | None = None
    ) -> tuple[JournalEntry | EditError, ...]:
        """Writes many facts at once: one solve for all of them, and one transaction.

        Edits of one subject are learnt one after another, each with the ones before it in the weights. Edits that
        fail their check are left out, and do not touch the others.

        Args:
            edits: the wishes.
            progress: told about every stage and step.
            cancel: set to stop; checked at every step until the edits are recorded.

        Returns:
            For every edit its journal entry, or why it was refused.

        Raises:
            EditCancelledError, JournalError, CorpusError: nothing has changed.
            UnsupportedModelError: see `prepare`.
        """
        results: dict[int, JournalEntry | EditError] = {}
        rounds = _rounds(edits, results)
        if not rounds:
            return tuple(results[i] for i in range(len(edits)))
        cancel = cancel or threading.Event()
        solver = self._prepared(progress, cancel)
        replaced = {e.number for i in chain(*rounds) for e in self.journal.same_fact(edits[i])}
        kept = tuple(e for e in self.active if e.number not in replaced)
        before = [(e.edit, tensors) for e, tensors in zip(kept, self.journal.tensors(kept), strict=True)]
        new: dict[int, NewEdit] = {}
        with self._temporarily([tensors for _, tensors in before]):
            for chosen in rounds:
                live = [*before, *((made.edit, made.tensors) for made in new.values())]
                bench = Bench(self.loaded, self.layer, self.settings, self._weights, self._neighbours)
                made = EditRound(bench, live, self.contexts, solver, progress, cancel)([edits[i] for i in chosen])
                new |= {i: one for i, one in zip(chosen, made, strict=True) if isinstance(one, NewEdit)}
                results |= {i: one for i, one in zip(chosen, made, strict=True) if isinstance(one, EditError)}
            progress(Progress("Recording the edit", 0, 1))
            if cancel.is_set():
                raise EditCancelledError("The edit was stopped; nothing has changed.")
            if new:
                results |= dict(zip(new, self.journal.append(list(new.values()), _now()), strict=True))
        progress(Progress("Done", 1, 1))
        return tuple(results[i] for i in range(len(edits)))

    def compose(self, tensors: Sequence[EditTensors]) -> dict[int, torch.Tensor]:
        """The weights that the base has with those edits alone, by layer; nothing is changed."""
        return self._weights.compose(pairs_by_layer(tensors))

    def install(self, new: Sequence[NewEdit]) -> tuple[JournalEntry, ...]:
        """Writes edits that are computed already into journal and weights, as they are.

        Args:
            new: edits of different facts; active edits of the same facts are replaced.

        Raises:
            EditError, JournalError: nothing has changed.
        """
        for made in new:
            _check(made.edit)
        entries = self.journal.append(new, _now())
        self.restore()
        return entries

    def undo(self, number: int | None = None) -> JournalEntry:
        """Takes an edit (default: the last active one) out of the weights; see `Journal.undo`."""
        entry = self.journal.undo(number)
        self.restore()
        return entry

    def redo(self, number: int | None = None) -> JournalEntry:
        """Puts an undone edit (default: the one undone last) back into the weights; see `Journal.redo`."""
        entry = self.journal.redo(number)
        self.restore()
        return entry


def _known_layer(loaded: LoadedModel, settings: EditSettings, cache_dir: Path) -> int:
    """The layer to edit; for a family that nobody has tried, a guess, until its first edit looks for it."""
    arch = loaded.arch
    if settings.layer is None:
        found = None if arch.is_known else found_layer(loaded, cache_dir)
        return arch.default_layer() if found is None else found
    if not 0 <= settings.layer < arch.n_layers - 1:
        raise EditError(f"Layer {settings.layer} cannot be edited: this model's layers 0 to {arch.n_layers - 2} can.")
    return settings.layer


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _rounds(edits: Sequence[FactEdit], refused: dict[int, JournalEntry | EditError]) -> list[list[int]]:
    """Indices of the edits in groups in which every subject occurs once; edits that make no sense are `refused`."""
    rounds: list[list[int]] = []
    facts: set[tuple[str, str]] = set()
    turns: Counter[str] = Counter()
    for i, edit in enumerate(edits):
        subject = edit.subject.casefold()
        try:
            _check(edit)
            if (subject, edit.relation) in facts:
                raise EditError(f"The batch changes the same fact about '{edit.subject}' twice; the first one counts.")
        except EditError as error:
            refused[i] = error
            continue
        facts.add((subject, edit.relation))
        if turns[subject] == len(rounds):
            rounds.append([])
        rounds[turns[subject]].append(i)
        turns[subject] += 1
    return rounds
