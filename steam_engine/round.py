"""Edits of different subjects, from wishes to checked tensors: learn, solve together, check, try again."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from steam_engine.errors import EditError
from steam_engine.journal import EditTensors, LayerTensors, NewEdit, pairs_by_layer
from steam_engine.keys import NeighbourKeys
from steam_engine.learning import Learned, Wish, learn
from steam_engine.loading import LoadedModel
from steam_engine.prompts import neighbour_rows
from steam_engine.settings import EditSettings
from steam_engine.solve import Solver, edit_directions
from steam_engine.types import CancelToken, EditTrace, FactEdit, Progress, ProgressCallback
from steam_engine.verify import freely_said
from steam_engine.weights import EditedWeights


@dataclass(frozen=True)
class Bench:
    """What stays the same from edit to edit."""

    loaded: LoadedModel
    layer: int
    settings: EditSettings
    weights: EditedWeights
    neighbours: NeighbourKeys


@dataclass(frozen=True)
class _Failure:
    """Why an edit did not pass its check."""

    error: EditError
    too_far: bool = False  # a smaller delta may help; otherwise, more steps
    partly: bool = False  # some of the questions are answered rightly: worth a second try, and then good enough


class EditRound:
    """Edits of different subjects on top of `live`, whose weights are installed: learn, solve, check, try again."""

    def __init__(
        self,
        bench: Bench,
        live: Sequence[tuple[FactEdit, EditTensors]],
        contexts: tuple[str, ...],
        solver: Solver,
        progress: ProgressCallback,
        cancel: CancelToken,
    ) -> None:
        self._bench, self._live, self._contexts = bench, live, contexts
        self._solver, self._progress, self._cancel = solver, progress, cancel
        self._base_norm = bench.weights.norm(bench.layer)
        self._started = time.perf_counter()

    def __call__(self, edits: Sequence[FactEdit]) -> tuple[NewEdit | EditError, ...]:
        """A checked edit for every wish, or why there is none. The live weights are those of the ones that passed."""
        settings = self._bench.settings
        learned: dict[int, Learned] = {}
        refused: dict[int, EditError] = {}
        self._sort(self._learn(edits, settings), range(len(edits)), learned, refused)
        rights = self._solve(learned)
        retries = settings.retries
        good_enough: dict[int, Learned] = {}  # tries of which some questions were answered rightly
        while learned:
            failed = self._gate(learned, rights)
            if not retries:
                failed = {number: failure for number, failure in failed.items() if not failure.partly}
            if not failed:
                break
            passed = {number: one for number, one in learned.items() if number not in failed}
            self._install(passed, rights)
            again: dict[int, EditError] = {}
            if retries:
                retries -= 1
                good_enough |= {number: learned[number] for number, failure in failed.items() if failure.partly}
                self._again(learned, failed, passed, again)
            else:
                again = {number: failure.error for number, failure in failed.items()}
            for number, error in again.items():
                if number in good_enough:  # another try made it worse
                    passed[number] = good_enough.pop(number)
                else:
                    refused[number] = error
            learned = dict(sorted(passed.items()))
            if len(learned) < len(rights):  # the right factors depend on all keys, not on any delta
                rights = self._solve(learned)
        seconds = (time.perf_counter() - self._started) / len(edits)
        made = {n: self._new_edit(one, rights[n], seconds) for n, one in learned.items()}
        return tuple(made[n] if n in made else refused[n] for n in range(len(edits)))

    @staticmethod
    def _sort(
        results: Sequence[Learned | EditError],
        numbers: Sequence[int],
        learned: dict[int, Learned],
        refused: dict[int, EditError],
    ) -> None:
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, EditError):
                refused[number] = result
            else:
                learned[number] = result

    def _learn(
        self, edits: Sequence[FactEdit], settings: EditSettings, starts: Sequence[torch.Tensor | None] | None = None
    ) -> tuple[Learned | EditError, ...]:
        starts = starts or [None] * len(edits)
        wishes = [Wish(edit, self._earlier(edit), start) for edit, start in zip(edits, starts, strict=True)]
        bench = self._bench
        return learn(bench.loaded, bench.layer, wishes, self._contexts, settings, self._progress, self._cancel)

    def _earlier(self, edit: FactEdit) -> tuple[FactEdit, ...]:
        """Edits of the same subject that are in the weights."""
        subject = edit.subject.casefold()
        return tuple(old for old, _ in self._live if old.subject.casefold() == subject)

    def _again(
        self,
        learned: Mapping[int, Learned],
        failed: Mapping[int, _Failure],
        passed: dict[int, Learned],
        refused: dict[int, EditError],
    ) -> None:
        """The second try of the edits that failed their check, on top of those that `passed`, which are live.

        What comes of it is put among the `passed` or the `refused`.
        """
        settings = self._bench.settings
        smaller = replace(settings, max_delta=settings.max_delta / 2, decay_weight=2 * settings.decay_weight)
        longer = replace(settings, max_steps=2 * settings.max_steps, stop_nll=settings.stop_nll / 2)
        for too_far, how in ((True, smaller), (False, longer)):
            numbers = [number for number, failure in failed.items() if failure.too_far == too_far]
            edits = [learned[number].edit for number in numbers]
            starts = [None if too_far else learned[number].found.delta for number in numbers]
            self._sort(self._learn(edits, how, starts), numbers, passed, refused)

    def _solve(self, learned: Mapping[int, Learned]) -> dict[int, torch.Tensor]:
        """Right factors [d_ff] in fp32, all edits solved together."""
        if not learned:
            return {}
        self._progress(Progress("Solving for the weights", 0, 1))
        bench, settings, device = self._bench, self._bench.settings, self._solver.device
        subjects = {one.edit.subject.casefold() for one in learned.values()}
        protected: list[tuple[torch.Tensor, float]] = []
        for one in learned.values():
            others = tuple(name for name in one.edit.neighbours if name.casefold() not in subjects)
            rows = neighbour_rows(bench.loaded.tokenizer, replace(one.edit, neighbours=others), self._contexts)
            protected.append((bench.neighbours.of(rows).to(device), settings.neighbour_weight))
        for old, tensors in self._live:
            part = tensors.in_layer(bench.layer)
            # The keys of one subject are nearly one key: preserving the earlier ones would forbid the new edit.
            if part is not None and old.subject.casefold() not in subjects:
                protected.append((part.keys.to(device), settings.preserved_weight))
        keys = [one.keys.to(device) for one in learned.values()]
        return dict(zip(learned, edit_directions(self._solver, keys, protected).float().cpu(), strict=True))

    def _install(self, learned: Mapping[int, Learned], rights: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Makes the live edits and the given ones the model's; returns the composed weights."""
        new = [self._tensors(one, rights[number]) for number, one in learned.items()]
        weights = self._bench.weights.compose(pairs_by_layer([*(tensors for _, tensors in self._live), *new]))
        self._bench.weights.install(weights)
        return weights

    def _tensors(self, one: Learned, right: torch.Tensor) -> EditTensors:
        part = LayerTensors(self._bench.layer, one.found.delta.cpu(), right, one.keys.cpu())
        return EditTensors((part,))

    def _gate(self, learned: Mapping[int, Learned], rights: Mapping[int, torch.Tensor]) -> dict[int, _Failure]:
        """Installs the edits; which of them are not finite, move the matrix too far, or are not said."""
        bench, settings = self._bench, self._bench.settings
        failed: dict[int, _Failure] = {}
        for number, one in learned.items():
            change = self._change(one, rights[number])
            if not math.isfinite(change):
                failed[number] = _Failure(EditError("The new weights are not finite numbers; nothing has changed."))
            elif change > settings.max_drift:
                failed[number] = _Failure(
                    EditError(
                        f"The edit would change the matrix by {change:.0%} of its norm (limit "
                        f"{settings.max_drift:.0%}); nothing has changed. Try a simpler phrasing of the fact."
                    ),
                    too_far=True,
                )
        if failed or not settings.must_say:
            self._install({n: one for n, one in learned.items() if n not in failed}, rights)
            return failed
        weights = self._install(learned, rights)
        if not all(bool(torch.isfinite(weight).all()) for weight in weights.values()):
            error = EditError("The new weights are not finite numbers; nothing has changed.")
            return {number: _Failure(error) for number in learned}
        rows = [(row, one.edit.target) for one in learned.values() for row in one.prompts.chat]
        said = iter(freely_said(bench.loaded, [row for row, _ in rows], [target for _, target in rows]))
        for number, one in learned.items():
            own = [next(said) for _ in one.prompts.chat]
            wrong = [answer for answer in own if not answer.matches]
            if wrong:
                error = EditError(
                    f"The model still says '{wrong[0].text}' instead of '{one.edit.target}' after "
                    f"{len(one.found.history)} steps; nothing has changed. "
                    "Try a shorter object or another phrasing of the fact."
                )
                failed[number] = _Failure(error, partly=len(wrong) < len(own))
        return failed

    def _change(self, one: Learned, right: torch.Tensor) -> float:
        """||W' - W|| / ||W|| of this edit alone."""
        return float(one.found.delta.norm()) * float(right.norm()) / self._base_norm

    def _new_edit(self, one: Learned, right: torch.Tensor, seconds: float) -> NewEdit:
        anchors = one.anchors
        trace = EditTrace(
            layer=self._bench.layer,
            steps=len(one.found.history),
            seconds=seconds,
            losses=one.found.history,
            nll=one.found.last.target,
            delta_norm=one.found.relative_norm,
            weight_drift=self._change(one, right),
            recovered=float((one.keys.cpu() @ right).mean()),
            anchor_kind=anchors.kind if anchors else "none",
            anchors=anchors.subjects if anchors else (),
            dropped_anchors=anchors.dropped if anchors else (),
            alignment_before=1 - one.found.first.alignment if anchors else None,
            alignment_after=1 - one.found.last.alignment if anchors else None,
        )
        return NewEdit(one.edit, trace, self._tensors(one, right))
