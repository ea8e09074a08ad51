"""Finds the delta: gradient descent on one vector, everything else fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from steam_engine.errors import EditCancelledError, EditError
from steam_engine.objective import LossTerms, Objective
from steam_engine.settings import EditSettings
from steam_engine.types import CancelToken


@dataclass(frozen=True)
class Optimised:
    """The delta and how it was reached."""

    delta: torch.Tensor  # [d_model], fp32
    history: tuple[float, ...]  # total loss per step
    first: LossTerms
    last: LossTerms
    relative_norm: float  # ||delta|| / ||value||


def optimise_delta(
    objectives: Sequence[Objective],
    settings: EditSettings,
    step: Callable[[int, LossTerms], None],
    cancel: CancelToken,
) -> Optimised:
    """Adam on delta until the object is said and the losses have settled in every objective.

    Args:
        objectives: the loss on different prompts of the edit; the steps take turns.
        settings: steps, step size, bounds and stopping values.
        step: told after every step.
        cancel: set to stop.

    Raises:
        EditCancelledError: `cancel` was set.
        EditError: the loss is not finite.
    """
    values = objectives[0].model.values
    norm = float(values.float().norm(dim=-1).mean())
    delta = torch.zeros(values.shape[-1], dtype=torch.float32, device=values.device, requires_grad=True)
    adam = torch.optim.Adam([delta], lr=settings.learning_rate)
    history: list[float] = []
    first: LossTerms | None = None
    terms: LossTerms | None = None
    unsettled = set(range(len(objectives)))
    for i in range(settings.max_steps):
        if cancel.is_set():
            raise EditCancelledError("The edit was stopped; nothing has changed.")
        adam.zero_grad()
        turn = i % len(objectives)
        terms = objectives[turn](delta)
        first = first or terms
        history.append(float(terms.total.detach()))
        if not torch.isfinite(terms.total):
            raise EditError("The optimisation became unstable (loss is not finite); nothing has changed.")
        step(i + 1, terms)
        if terms.all_best and terms.target < settings.stop_nll:
            unsettled.discard(turn)
        else:
            unsettled.add(turn)
        if not unsettled:
            break
        terms.total.backward()  # type: ignore[no-untyped-call]
        adam.step()
        with torch.no_grad():
            bound = settings.max_delta * norm
            if delta.norm() > bound:
                delta.mul_(bound / delta.norm())
    assert first is not None
    assert terms is not None
    found = delta.detach()
    return Optimised(found, tuple(history), first, terms, float(found.norm()) / norm)
