"""Keys of prompts: what the edited down projection sees at the subject's last tokens. Layers above are not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import captured, stopping_after
from steam_engine.tokens import Row, pad_id, pad_rows

BATCH_ROWS = 32  # rows a forward pass; longer batches pad more than they gain on small machines


@torch.no_grad()
def subject_keys(arch: Architecture, tokenizer: Any, layer: int, rows: Sequence[Row]) -> torch.Tensor:
    """Keys [n_subjects, d_ff] in fp32 at every marked subject position of `rows`, in order.

    Tokens after a row's last subject do not influence them and are cut off.
    """
    device = next(arch.model.parameters()).device
    down = arch.down_projection(layer)
    found = []
    order = sorted(range(len(rows)), key=lambda i: rows[i].subjects[-1])  # similar lengths together
    per_row: dict[int, torch.Tensor] = {}
    for begin in range(0, len(order), BATCH_ROWS):
        chunk = order[begin : begin + BATCH_ROWS]
        cut = [Row(rows[i].ids[: rows[i].subjects[-1] + 1], rows[i].subjects) for i in chunk]
        batch = pad_rows(cut, pad_id(tokenizer)).to(device)
        with captured(inputs={"key": down}) as seen, stopping_after(down):
            arch.base(
                input_ids=batch.ids,
                attention_mask=batch.mask,
                position_ids=batch.positions,
                use_cache=False,
            )
        for i, row, start in zip(chunk, cut, batch.start, strict=True):
            per_row[i] = seen["key"][chunk.index(i), [start + p for p in row.subjects]].float()
    for i in range(len(rows)):
        found.append(per_row[i])
    return torch.cat(found) if found else torch.zeros(0, arch.d_ff, device=device)
