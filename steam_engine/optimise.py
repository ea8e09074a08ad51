"""Finds the deltas: gradient descent on one vector an edit, everything else fixed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from steam_engine.anchors import Anchors
from steam_engine.errors import EditCancelledError, EditError
from steam_engine.objective import LossTerms, Objective
from steam_engine.prompts import PromptSet
from steam_engine.settings import EditSettings
from steam_engine.suffix import Prefill, SuffixModel
from steam_engine.types import CancelToken


@dataclass(frozen=True)
class Task:
    """One edit's part of the work: its prompts, run once, and where its delta starts."""

    prompts: PromptSet
    prefill: Prefill
    anchors: Anchors | None
    start: torch.Tensor | None = None  # [d_model]; None is zero


@dataclass(frozen=True)
class Optimised:
    """A delta and how it was reached."""

    delta: torch.Tensor  # [d_model], fp32
    history: tuple[float, ...]  # total loss per step
    first: LossTerms
    last: LossTerms
    relative_norm: float  # ||delta|| / ||value||


@dataclass(eq=False)
class _Running:
    """An edit that is being optimised; its kinds of step (shares of its prompts) take turns."""

    number: int
    task: Task
    shares: tuple[tuple[int, ...], ...]
    delta: torch.Tensor
    adam: torch.optim.Adam
    norm: float  # mean norm of its values
    history: list[float] = field(default_factory=list)
    first: LossTerms | None = None
    last: LossTerms | None = None
    unsettled: set[int] = field(default_factory=set)

    @property
    def turn(self) -> int:
        return len(self.history) % len(self.shares)

    def result(self) -> Optimised:
        assert self.first is not None
        assert self.last is not None
        found = self.delta.detach()
        return Optimised(found, tuple(self.history), self.first, self.last, float(found.norm()) / self.norm)


def optimise_deltas(
    tasks: Iterable[Task],
    settings: EditSettings,
    step: Callable[[int, int, LossTerms], None],
    cancel: CancelToken,
) -> Iterator[tuple[int, Optimised | EditError]]:
    """Adam on every delta until its object is said and the losses have settled on all of its prompts.

    Up to `settings.n_packed` edits share a forward pass; when one has settled, the next one takes its place. The
    deltas do not meet, so each is what it would have become alone, up to rounding.

    Args:
        tasks: taken one by one, when there is room.
        settings: steps, step size, bounds and stopping values.
        step: told after every step of every edit: its number, how many steps it has made, its losses.
        cancel: set to stop.

    Yields:
        (0-based number of the task, its delta or why there is none), in the order in which they settle.

    Raises:
        EditCancelledError: `cancel` was set.
    """
    waiting = enumerate(tasks)
    running: list[_Running] = []
    known: dict[tuple[tuple[int, int], ...], Objective] = {}
    while True:
        while len(running) < max(1, settings.n_packed) and (new := next(waiting, None)) is not None:
            running.append(_begin(*new, settings))
            known.clear()
        if not running:
            return
        if cancel.is_set():
            raise EditCancelledError("The edit was stopped; nothing has changed.")
        turns = tuple((edit.number, edit.turn) for edit in running)
        if turns not in known:
            known[turns] = _objective(running, settings)
        losses = known[turns](torch.stack([edit.delta for edit in running]))
        done: list[_Running] = []
        for edit, terms in zip(running, losses.edits, strict=True):
            settled = terms.all_best and terms.target < settings.stop_nll
            (edit.unsettled.discard if settled else edit.unsettled.add)(edit.turn)
            edit.history.append(terms.total)
            edit.first, edit.last = edit.first or terms, terms
            step(edit.number, len(edit.history), terms)
            if not edit.unsettled or len(edit.history) >= settings.max_steps or not math.isfinite(terms.total):
                done.append(edit)
        if len(done) < len(running):
            losses.total.backward()  # type: ignore[no-untyped-call]
            for edit in running:
                if edit not in done:
                    _descend(edit, settings)
        for edit in done:
            running.remove(edit)
            known.clear()
            yield (
                edit.number,
                edit.result()
                if math.isfinite(edit.history[-1])
                else EditError("The optimisation became unstable (loss is not finite); nothing has changed."),
            )


def _begin(number: int, task: Task, settings: EditSettings) -> _Running:
    values = task.prefill.values
    start = torch.zeros(values.shape[-1]) if task.start is None else task.start
    delta = start.to(values.device, torch.float32, copy=True).requires_grad_(True)
    shares = task.prompts.batches(settings.n_batches)
    adam = torch.optim.Adam([delta], lr=settings.learning_rate)
    norm = float(values.float().norm(dim=-1).mean())
    return _Running(number, task, shares, delta, adam, norm, unsettled=set(range(len(shares))))


def _objective(running: Sequence[_Running], settings: EditSettings) -> Objective:
    chosen = [edit.shares[edit.turn] for edit in running]
    model = SuffixModel([(edit.task.prefill, rows) for edit, rows in zip(running, chosen, strict=True)])
    roles = [edit.task.prompts.roles[r] for edit, rows in zip(running, chosen, strict=True) for r in rows]
    return Objective(model, roles, [edit.task.anchors for edit in running], settings)


def _descend(edit: _Running, settings: EditSettings) -> None:
    edit.adam.step()
    edit.adam.zero_grad()
    bound = settings.max_delta * edit.norm
    with torch.no_grad():
        if edit.delta.norm() > bound:
            edit.delta.mul_(bound / edit.delta.norm())
