"""The forward pass of an edit: everything before the subject's last token, and every layer up to the edited one,
is run once; an optimisation step runs only the layers above on the few tokens from the subject on.

The rows of an edit have very different lengths, so a step packs them into one sequence without any padding: each
token sees the prefix of its own row and the earlier tokens of its own row, by position and mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import bypassed, captured, first_tensor
from steam_engine.prefix_cache import cache_argument, new_cache, packed_prefix
from steam_engine.tokens import Row, pad_id, pad_rows


@dataclass(frozen=True)
class SuffixOutput:
    """One step's forward pass over the suffix tokens of all rows; `SuffixModel.flat` gives indices."""

    hidden: torch.Tensor  # [n_flat, d_model], after the final norm
    residuals: dict[int, torch.Tensor]  # layer -> [n_flat, d_model], residual stream after the layer


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


class SuffixModel:
    """The layers above `layer`, ready to be run on `rows` with a delta added to the value at every subject.

    Rows must be shorter than the model's sliding window, where it has one (hundreds of tokens at least).

    Attributes:
        rows: the prompts.
        keys: [n_subjects, d_ff], inputs of the down projection at every occurrence of the subject, row by row.
        values: [n_subjects, d_model], its outputs there.
        base_hidden: [n_flat, d_model], final-normed residual streams of the unedited model.
    """

    def __init__(self, arch: Architecture, tokenizer: Any, layer: int, rows: Sequence[Row]) -> None:
        self.arch, self.layer, self.rows = arch, layer, tuple(rows)
        device = next(arch.model.parameters()).device
        cut = [Row(row.ids[: row.n_inputs], row.subjects) for row in rows]
        batch = pad_rows(cut, pad_id(tokenizer)).to(device)
        cache = new_cache()
        down = arch.down_projection(layer)
        with (
            torch.no_grad(),
            captured(outputs={"layer": arch.layers[layer], "value": down}, inputs={"key": down}) as seen,
        ):
            out = arch.base(
                input_ids=batch.ids,
                attention_mask=batch.mask,
                position_ids=batch.positions,
                **cache_argument(arch.base, cache),
            )
        prefixes = [row.subjects[0] for row in rows]
        suffixes = [row.n_inputs - row.subjects[0] for row in rows]
        self._origin = [sum(suffixes[:r]) for r in range(len(rows))]  # flat index of each row's first subject
        spans = list(zip(batch.start, prefixes, strict=True))
        self._cache = packed_prefix(cache, spans)
        suffix_rows = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(suffixes)).to(device)
        suffix_columns = torch.cat(
            [start + prefix + torch.arange(n) for (start, prefix), n in zip(spans, suffixes, strict=True)]
        ).to(device)
        self._positions = batch.positions[suffix_rows, suffix_columns][None]  # [1, n_flat]
        self._hidden = first_tensor(seen["layer"])[suffix_rows, suffix_columns][None].clone()  # [1, n_flat, d_model]
        self.base_hidden = out[0][suffix_rows, suffix_columns].clone()
        self._tuple_output = isinstance(seen["layer"], tuple)
        self._mask = packing_mask(prefixes, suffixes, self._hidden.dtype).to(device)
        places = [(r, p) for r, row in enumerate(rows) for p in row.subjects]
        self._subjects = torch.tensor([self.flat(r, p) for r, p in places], device=device)
        at = (suffix_rows[self._subjects], suffix_columns[self._subjects])
        self.keys = seen["key"][at].clone()
        self.values = seen["value"][at].clone()
        with torch.no_grad():
            self._contribution = arch.contribution(layer, self.values)

    def flat(self, row: int, position: int) -> int:
        """Index into the outputs of `position` in the row's own token ids (from its first subject on)."""
        return self._origin[row] + position - self.rows[row].subjects[0]

    def __call__(self, delta: torch.Tensor, residual_layers: Sequence[int] = ()) -> SuffixOutput:
        """Runs the layers above with `delta` [d_model] (fp32) added to every subject's value.

        Gradients flow to delta. `residual_layers` (> the edited layer) are returned as well.
        """
        moved = self.arch.contribution(self.layer, self.values + delta.to(self.values.dtype))
        change = (moved - self._contribution)[None]
        hidden = self._hidden.index_add(1, self._subjects, change)
        skipped = list(self.arch.layers)[: self.layer + 1]
        wanted = {str(i): self.arch.layers[i] for i in residual_layers}
        with bypassed(skipped, (hidden,) if self._tuple_output else hidden), captured(outputs=wanted) as seen:
            out = self.arch.base(
                inputs_embeds=hidden,
                attention_mask=self._mask,
                position_ids=self._positions,
                **cache_argument(self.arch.base, self._cache),
            )
        return SuffixOutput(out[0][0], {int(k): first_tensor(v)[0] for k, v in seen.items()})
