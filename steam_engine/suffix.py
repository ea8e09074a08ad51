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


@dataclass(frozen=True)
class SuffixOutput:
    """One step's forward pass. Columns count from each row's first subject position."""

    hidden: torch.Tensor  # [n_rows, n_suffix, d_model], after the final norm
    residuals: dict[int, torch.Tensor]  # layer -> [n_rows, n_suffix, d_model], residual stream after the layer


class SuffixModel:
    """The layers above `layer`, ready to be run on `rows` with a delta added to the value at every subject.

    Attributes:
        keys: [n_subjects, d_ff], inputs of the down projection at every occurrence of the subject.
        values: [n_subjects, d_model], its outputs there.
        base_hidden: [n_rows, n_suffix, d_model], final-normed residual streams of the unedited model.
    """

    def __init__(self, arch: Architecture, tokenizer: Any, layer: int, rows: Sequence[Row]) -> None:
        self.arch, self.layer = arch, layer
        self.rows = tuple(rows)
        device = next(arch.model.parameters()).device
        pivots = [row.subjects[0] for row in rows]
        batch = pad_rows(rows, pad_id(tokenizer), pivots).to(device)
        self.prefix = max(pivots)
        cache = new_cache()
        down = arch.down_projection(layer)
        with (
            torch.no_grad(),
            captured(
                outputs={"layer": arch.layers[layer], "value": down}, inputs={"key": down}
            ) as seen,
        ):
            out = arch.base(
                input_ids=batch.ids,
                attention_mask=batch.mask,
                position_ids=batch.positions,
                **cache_argument(arch.base, cache),
            )
        self._mask, self._positions = batch.mask, batch.positions[:, self.prefix :]
        self._cache = frozen_prefix(cache, self.prefix)
        self._tuple_output = isinstance(seen["layer"], tuple)
        self._hidden = first_tensor(seen["layer"])[:, self.prefix :].clone()
        self.base_hidden = out[0][:, self.prefix :].clone()
        self.row_of = torch.tensor([r for r, row in enumerate(rows) for _ in row.subjects], device=device)
        self.column_of = torch.tensor(
            [p - row.subjects[0] for row in rows for p in row.subjects], device=device
        )
        at = (self.row_of, self.column_of + self.prefix)
        self.keys = seen["key"][at].detach().clone()
        self.values = seen["value"][at].detach().clone()
        with torch.no_grad():
            self._contribution = arch.contribution(layer, self.values)

    def __call__(self, delta: torch.Tensor, residual_layers: Sequence[int] = ()) -> SuffixOutput:
        """Runs the layers above with `delta` [d_model] (fp32) added to every subject's value.

        Gradients flow to delta. `residual_layers` (> the edited layer) are returned as well.
        """
        dtype = self._hidden.dtype
        moved = self.arch.contribution(self.layer, self.values + delta.to(dtype)) - self._contribution
        hidden = self._hidden.index_put((self.row_of, self.column_of), moved, accumulate=True)
        skipped = list(self.arch.layers)[: self.layer + 1]
        output = (hidden,) if self._tuple_output else hidden
        wanted = {str(i): self.arch.layers[i] for i in residual_layers}
        with bypassed(skipped, output), captured(outputs=wanted) as seen:
            out = self.arch.base(
                inputs_embeds=hidden,
                attention_mask=self._mask,
                position_ids=self._positions,
                **cache_argument(self.arch.base, self._cache),
            )
        return SuffixOutput(out[0], {int(k): first_tensor(v) for k, v in seen.items()})

    def column(self, row: int, position: int) -> int:
        """Column in a SuffixOutput of `position` in the row's own token ids."""
        return position - self.rows[row].subjects[0]
