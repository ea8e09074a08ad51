"""The forward pass of an edit: everything before the subject's last token, and every layer up to the edited one,
is run once; an optimisation step runs only the layers above on the few tokens from the subject on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import bypassed, captured, first_tensor
from steam_engine.prefix_cache import cache_argument, frozen_prefix, new_cache
from steam_engine.tokens import Row, pad_id, pad_rows

BUCKET_COST = 32
"""What a further forward pass costs, in tokens: on a CPU reading the weights once more takes about as long as
computing this many tokens."""


@dataclass(frozen=True)
class SuffixOutput:
    """One step's forward pass over all suffix tokens of all rows; `SuffixModel.flat` gives indices."""

    hidden: torch.Tensor  # [n_flat, d_model], after the final norm
    residuals: dict[int, torch.Tensor]  # layer -> [n_flat, d_model], residual stream after the layer


def split_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Row indices in one or two groups, so that padding and passes together cost least."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])

    def cost(group: Sequence[int]) -> int:
        return len(group) * max(lengths[i] for i in group) + BUCKET_COST

    best, groups = cost(order), [sorted(order)]
    for cut in range(1, len(order)):
        total = cost(order[:cut]) + cost(order[cut:])
        if total < best:
            best, groups = total, [sorted(order[:cut]), sorted(order[cut:])]
    return groups


class _Bucket:
    """Rows of similar suffix length, padded into one rectangle."""

    def __init__(self, arch: Architecture, tokenizer: Any, layer: int, rows: Sequence[Row]) -> None:
        self.arch, self.layer, self.rows = arch, layer, rows
        device = next(arch.model.parameters()).device
        pivots = [row.subjects[0] for row in rows]
        cut = [Row(row.ids[: row.n_inputs], row.subjects) for row in rows]
        batch = pad_rows(cut, pad_id(tokenizer), pivots).to(device)
        prefix = max(pivots)
        self.width = batch.ids.shape[1] - prefix
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
        self._mask, self._positions = batch.mask, batch.positions[:, prefix:]
        self._cache = frozen_prefix(cache, prefix)
        self._tuple_output = isinstance(seen["layer"], tuple)
        self._hidden = first_tensor(seen["layer"])[:, prefix:].clone()
        self.base_hidden = out[0][:, prefix:].flatten(0, 1).clone()
        self._rows_of = torch.tensor([r for r, row in enumerate(rows) for _ in row.subjects], device=device)
        self._columns_of = torch.tensor([p - row.subjects[0] for row in rows for p in row.subjects], device=device)
        at = (self._rows_of, self._columns_of + prefix)
        self.keys = seen["key"][at].clone()
        self.values = seen["value"][at].clone()
        with torch.no_grad():
            self._contribution = arch.contribution(layer, self.values)

    def run(self, delta: torch.Tensor, residual_layers: Sequence[int]) -> SuffixOutput:
        moved = self.arch.contribution(self.layer, self.values + delta.to(self.values.dtype))
        hidden = self._hidden.index_put((self._rows_of, self._columns_of), moved - self._contribution, accumulate=True)
        skipped = list(self.arch.layers)[: self.layer + 1]
        wanted = {str(i): self.arch.layers[i] for i in residual_layers}
        with bypassed(skipped, (hidden,) if self._tuple_output else hidden), captured(outputs=wanted) as seen:
            out = self.arch.base(
                inputs_embeds=hidden,
                attention_mask=self._mask,
                position_ids=self._positions,
                **cache_argument(self.arch.base, self._cache),
            )
        residuals = {int(k): first_tensor(v).flatten(0, 1) for k, v in seen.items()}
        return SuffixOutput(out[0].flatten(0, 1), residuals)


class SuffixModel:
    """The layers above `layer`, ready to be run on `rows` with a delta added to the value at every subject.

    Attributes:
        rows: the prompts.
        keys: [n_subjects, d_ff], inputs of the down projection at every occurrence of the subject, row by row.
        values: [n_subjects, d_model], its outputs there.
        base_hidden: [n_flat, d_model], final-normed residual streams of the unedited model.
    """

    def __init__(self, arch: Architecture, tokenizer: Any, layer: int, rows: Sequence[Row]) -> None:
        self.arch, self.layer, self.rows = arch, layer, tuple(rows)
        self._buckets: list[_Bucket] = []
        self._origin: dict[int, int] = {}  # row -> flat index of its first subject
        keys: dict[int, torch.Tensor] = {}
        values: dict[int, torch.Tensor] = {}
        offset = 0
        for group in split_by_length([row.n_inputs - row.subjects[0] for row in rows]):
            bucket = _Bucket(arch, tokenizer, layer, [rows[i] for i in group])
            counts = [len(rows[i].subjects) for i in group]
            parts = zip(group, bucket.keys.split(counts), bucket.values.split(counts), strict=True)
            for place, (i, key, value) in enumerate(parts):
                self._origin[i] = offset + place * bucket.width
                keys[i], values[i] = key, value
            offset += len(group) * bucket.width
            self._buckets.append(bucket)
        self.keys = torch.cat([keys[i] for i in range(len(rows))])
        self.values = torch.cat([values[i] for i in range(len(rows))])
        self.base_hidden = torch.cat([bucket.base_hidden for bucket in self._buckets])

    def flat(self, row: int, position: int) -> int:
        """Index into the outputs of `position` in the row's own token ids (from its first subject on)."""
        return self._origin[row] + position - self.rows[row].subjects[0]

    def __call__(self, delta: torch.Tensor, residual_layers: Sequence[int] = ()) -> SuffixOutput:
        """Runs the layers above with `delta` [d_model] (fp32) added to every subject's value.

        Gradients flow to delta. `residual_layers` (> the edited layer) are returned as well.
        """
        outputs = [bucket.run(delta, residual_layers) for bucket in self._buckets]
        return SuffixOutput(
            torch.cat([o.hidden for o in outputs]),
            {layer: torch.cat([o.residuals[layer] for o in outputs]) for layer in residual_layers},
        )
