"""The edited matrices: W(now) = W(base) + sum of factor pairs, recomputed from a kept base, so undo is bit-exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from steam_engine.architecture import Architecture
from steam_engine.placement import set_weight, weight_of


@dataclass(frozen=True)
class FactorPair:
    """The rank-one change `W += outer(left, right)`; left [d_model], right [d_ff], fp32."""

    left: torch.Tensor
    right: torch.Tensor


PairsByLayer = Mapping[int, Sequence[FactorPair]]


class EditedWeights:
    """Owns the down projections of the layers that edits touch.

    A layer's base weight is kept, in the model's own dtype, from the first time it is asked for; sums are made in
    fp32 and cast once.
    """

    def __init__(self, arch: Architecture) -> None:
        self._arch = arch
        self._base: dict[int, torch.Tensor] = {}

    def base(self, layer: int) -> torch.Tensor:
        """The layer's weight without any edit."""
        if layer not in self._base:
            self._base[layer] = weight_of(self._arch.down_projection(layer)).detach().clone()
        return self._base[layer]

    def norm(self, layer: int) -> float:
        """Frobenius norm of the layer's base weight."""
        return float(self.base(layer).float().norm())

    @torch.no_grad()
    def compose(self, pairs: PairsByLayer) -> dict[int, torch.Tensor]:
        """The weights with the pairs added in order, in the layout and dtype of the base; nothing is changed."""
        return {layer: self._sum(layer, added) for layer, added in pairs.items() if added}

    def _sum(self, layer: int, pairs: Sequence[FactorPair]) -> torch.Tensor:
        base = self.base(layer)
        total = base.float()
        for pair in pairs:
            change = torch.outer(pair.left.to(total.device), pair.right.to(total.device))  # [d_model, d_ff]
            total = total + (change.T if self._arch.transposed else change)
        return total.to(base.dtype)

    @torch.no_grad()
    def install(self, weights: Mapping[int, torch.Tensor]) -> None:
        """Makes composed weights the live ones, in place; every other layer gets its base back."""
        for layer in {*self._base, *weights}:
            base = self.base(layer)
            set_weight(self._arch.down_projection(layer), weights.get(layer, base))
