"""Does the model say the target? Checked on whole prompts with the weights as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.tokens import Row, pad_id, pad_rows


@dataclass(frozen=True)
class Said:
    """What the model prefers at the places of a row's target."""

    matches: bool  # every target token is the most probable one
    text: str  # the most probable tokens there


@torch.no_grad()
def said_at_target(arch: Architecture, tokenizer: Any, rows: Sequence[Row]) -> tuple[Said, ...]:
    """For each row, the most probable tokens where its target stands."""
    if not rows:
        return ()
    device = next(arch.model.parameters()).device
    batch = pad_rows(rows, pad_id(tokenizer)).to(device)
    hidden = arch.base(input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False)[0]
    found = []
    for i, row in enumerate(rows):
        columns = torch.tensor([batch.start[i] + p for p in row.target], device=device)
        best = arch.logits(hidden[i, columns - 1]).argmax(-1)
        text = tokenizer.decode(best.tolist(), skip_special_tokens=True).strip()
        found.append(Said(torch.equal(best, batch.ids[i, columns]), text))
    return tuple(found)
