"""Several prompts in one forward pass without padding: one sequence in which no prompt sees another.

The prompts of an edit have very different lengths (a statement has ten tokens, a chat fifty), and on a CPU every
padded token costs as much as a real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from steam_engine.architecture import Architecture
from steam_engine.tokens import Row

PACK_TOKENS = 512  # a pass; attention in a packed sequence costs its square, and is small beside the rest up to here


@dataclass(frozen=True)
class Packed:
    """Prompts one after another, as a model takes them: `arch.base(**packed.inputs)`."""

    ids: torch.Tensor  # [1, n_tokens]
    positions: torch.Tensor  # [1, n_tokens], counted from each prompt's own beginning
    mask: torch.Tensor  # [1, 1, n_tokens, n_tokens], additive
    start: tuple[int, ...]  # index of each prompt's first token

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """Arguments of the model's forward."""
        return {"input_ids": self.ids, "attention_mask": self.mask, "position_ids": self.positions}


def packing_mask(prefixes: Sequence[int], suffixes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Additive attention mask of packed rows, [1, 1, sum(suffixes), sum(prefixes) + sum(suffixes)].

    Keys are all prefixes in row order, then all suffixes; queries are the suffixes. A query sees its own row's
    prefix and its own row's suffix up to itself.
    """
    query_row = torch.repeat_interleave(torch.arange(len(suffixes)), torch.tensor(suffixes))
    key_row = torch.cat([torch.repeat_interleave(torch.arange(len(prefixes)), torch.tensor(prefixes)), query_row])
    order = torch.arange(len(query_row))
    key_order = torch.cat([torch.full((sum(prefixes),), -1), order])
    seen = (query_row[:, None] == key_row[None]) & (key_order[None] <= order[:, None])
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[None, None]


def pack(arch: Architecture, rows: Sequence[Sequence[int]]) -> Packed:
    """Packs token ids for a model.

    Args:
        arch: the model.
        rows: token ids of each prompt, none empty, each shorter than the model's sliding window, where it has one.
    """
    lengths = [len(row) for row in rows]
    return Packed(
        ids=torch.tensor([[token for row in rows for token in row]], device=arch.device),
        positions=torch.tensor([[i for n in lengths for i in range(n)]], device=arch.device),
        mask=packing_mask([0] * len(rows), lengths, arch.dtype).to(arch.device),
        start=tuple(sum(lengths[:i]) for i in range(len(lengths))),
    )


def groups(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """`rows` in order, cut into groups of at most PACK_TOKENS tokens (but at least one row)."""
    begin, total = 0, 0
    for i, row in enumerate(rows):
        if total + len(row.ids) > PACK_TOKENS and i > begin:
            yield rows[begin:i]
            begin, total = i, 0
        total += len(row.ids)
    if rows:
        yield rows[begin:]
