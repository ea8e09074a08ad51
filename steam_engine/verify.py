"""Does the model say the target? Checked on whole prompts with the weights as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.packing import groups, pack
from steam_engine.tokens import Row


@dataclass(frozen=True)
class Said:
    """What the model prefers at the places of a row's target."""

    matches: bool  # every target token is the most probable one
    text: str  # the most probable tokens there


def said_in(arch: Architecture, tokenizer: Any, row: Row, hidden: torch.Tensor) -> Said:
    """What the model says at the row's target, given its final-normed residual stream [n_inputs, d_model]."""
    target = list(row.target)
    best = arch.logits(hidden[[p - 1 for p in target]]).argmax(-1).tolist()
    text = tokenizer.decode(best, skip_special_tokens=True).strip()
    return Said(best == [row.ids[p] for p in target], text)


@torch.no_grad()
def said_at_target(arch: Architecture, tokenizer: Any, rows: Sequence[Row]) -> tuple[Said, ...]:
    """For each row, the most probable tokens where its target stands."""
    found = []
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        hidden = arch.base(**batch.inputs, use_cache=False)[0][0]
        found += [said_in(arch, tokenizer, row, hidden[at:]) for at, row in zip(batch.start, group, strict=True)]
    return tuple(found)
