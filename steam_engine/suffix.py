"""The forward pass of an edit: everything before the subject's last token, and every layer up to the edited one,
is run once; an optimisation step runs only the layers above on the few tokens from the subject on.

A step packs its rows (of one edit, or of several) into one sequence without any padding: each token sees the prefix
of its own row and the earlier tokens of its own row, by position and mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import bypassed, captured, first_tensor
from steam_engine.packing import pack, packing_mask
from steam_engine.prefix_cache import cache_argument, new_cache, packed_prefix
from steam_engine.tokens import Row


@dataclass(frozen=True)
class SuffixOutput:
    """One step's forward pass over the suffix tokens of all rows; `SuffixModel.flat` gives indices."""

    hidden: torch.Tensor  # [n_flat, d_model], after the final norm
    residuals: dict[int, torch.Tensor]  # layer -> [n_flat, d_model], residual stream after the layer
    # Both where the edited layer is.


class Prefill:
    """One run of the unedited model over whole prompts, from which any group of them becomes a SuffixModel.

    Rows must be shorter than the model's sliding window, where it has one (hundreds of tokens at least).

    Attributes:
        rows: the prompts.
        keys: [n_subjects, d_ff], inputs of the down projection at every occurrence of the subject, row by row.
        values: [n_subjects, d_model], its outputs there.
    """

    def __init__(self, arch: Architecture, layer: int, rows: Sequence[Row]) -> None:
        self.arch, self.layer, self.rows = arch, layer, tuple(rows)
        batch = pack(arch, [row.ids[: row.n_inputs] for row in rows])
        self.cache = new_cache()
        down = arch.down_projection(layer)
        with (
            torch.no_grad(),
            captured(outputs={"layer": arch.layers[layer], "value": down}, inputs={"key": down}) as seen,
        ):
            out = arch.base(**batch.inputs, **cache_argument(arch.base, self.cache))
        self.start = batch.start
        self.hidden = first_tensor(seen["layer"])[0]  # [n_tokens, d_model], after the edited layer
        self.final = out[0][0].to(self.hidden.device)  # [n_tokens, d_model], after the final norm
        self.tuple_output = isinstance(seen["layer"], tuple)
        at = [start + p for start, row in zip(batch.start, rows, strict=True) for p in row.subjects]
        self.keys = seen["key"][0, at].clone()
        self.values = seen["value"][0, at].clone()
        self._ends = [sum(len(row.subjects) for row in rows[: i + 1]) for i in range(len(rows))]

    def values_of(self, row: int) -> torch.Tensor:
        """Values [n_subjects of the row, d_model]."""
        end = self._ends[row]
        values: torch.Tensor = self.values[end - len(self.rows[row].subjects) : end]
        return values

    def model(self, chosen: Sequence[int] | None = None) -> SuffixModel:
        """The layers above the edited one on the `chosen` rows (default: all)."""
        return SuffixModel([(self, range(len(self.rows)) if chosen is None else chosen)])


class SuffixModel:
    """The layers above the edited one, ready to be run on some rows with a delta added to the value at every subject.

    Several edits go through together, packed like the rows of one: each has rows and a delta of its own.

    Args:
        parts: for every edit, its prefilled prompts and the indices of those that are wanted; all of one layer.

    Attributes:
        rows: the prompts, edit by edit.
        owners: for each row, the index of its edit.
        values: for each edit, [n_subjects, d_model], values at every occurrence of the subject, row by row.
        base_hidden: [n_flat, d_model], final-normed residual streams of the unedited model.
    """

    def __init__(self, parts: Sequence[tuple[Prefill, Sequence[int]]]) -> None:
        first = parts[0][0]
        arch, device = first.arch, first.hidden.device
        self.arch, self.layer = arch, first.layer
        self.rows = tuple(prefill.rows[r] for prefill, chosen in parts for r in chosen)
        self.owners = tuple(i for i, (_, chosen) in enumerate(parts) for _ in chosen)
        prefixes = [row.subjects[0] for row in self.rows]
        suffixes = [row.n_inputs - row.subjects[0] for row in self.rows]
        self._origin = [sum(suffixes[:i]) for i in range(len(self.rows))]  # flat index of each row's first subject
        spans = [(p, [(p.start[r], p.rows[r].subjects[0]) for r in chosen]) for p, chosen in parts]
        self._cache = packed_prefix([(prefill.cache, places) for prefill, places in spans])
        own = [torch.arange(n, n + m) for n, m in zip(prefixes, suffixes, strict=True)]
        self._positions = torch.cat(own)[None].to(device)  # [1, n_flat]
        hidden, final = [], []
        for prefill, chosen in parts:
            columns = torch.cat(
                [torch.arange(row.subjects[0], row.n_inputs) + prefill.start[r] for r, row in _picked(prefill, chosen)]
            ).to(device)
            hidden.append(prefill.hidden[columns])
            final.append(prefill.final[columns])
        self._hidden = torch.cat(hidden)[None]  # [1, n_flat, d_model]
        self.base_hidden = torch.cat(final)
        self._tuple_output = first.tuple_output
        self._mask = packing_mask(prefixes, suffixes, self._hidden.dtype).to(device)
        places = [(i, p) for i, row in enumerate(self.rows) for p in row.subjects]
        self._subjects = torch.tensor([self.flat(i, p) for i, p in places], device=device)
        self._subject_owners = torch.tensor([self.owners[i] for i, _ in places], device=device)
        self.values = tuple(torch.cat([prefill.values_of(r) for r in chosen]) for prefill, chosen in parts)
        self._values = torch.cat(self.values)
        with torch.no_grad():
            self._contribution = arch.contribution(self.layer, self._values)

    def flat(self, row: int, position: int) -> int:
        """Index into the outputs of `position` in the row's own token ids (from its first subject on)."""
        return self._origin[row] + position - self.rows[row].subjects[0]

    def __call__(self, deltas: torch.Tensor, residual_layers: Sequence[int] = ()) -> SuffixOutput:
        """Runs the layers above with each edit's delta added to the values at its subjects.

        Args:
            deltas: [n_edits, d_model], fp32; gradients flow to them.
            residual_layers: (> the edited layer) whose residual streams are returned as well.
        """
        moved = self.arch.contribution(self.layer, self._values + deltas[self._subject_owners].to(self._values.dtype))
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
        here = self._hidden.device  # upper layers may be on others
        return SuffixOutput(out[0][0].to(here), {int(k): first_tensor(v)[0].to(here) for k, v in seen.items()})


def _picked(prefill: Prefill, chosen: Sequence[int]) -> list[tuple[int, Row]]:
    return [(r, prefill.rows[r]) for r in chosen]
