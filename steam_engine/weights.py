"""The edited matrix: W(now) = W(base) + sum of factor pairs, recomputed from a kept base, so undo is bit-exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from steam_engine.architecture import Architecture


@dataclass(frozen=True)
class FactorPair:
    """The rank-one change `W += outer(left, right)`; left [d_model], right [d_ff], fp32."""

    left: torch.Tensor
    right: torch.Tensor


class EditedWeight:
    """Owns the down projection of one layer.

    The base weight is kept in the model's own dtype; sums are made in fp32 and cast once.
    """

    def __init__(self, arch: Architecture, layer: int) -> None:
        self.layer = layer
        weight = arch.down_projection(layer).weight
        assert isinstance(weight, torch.Tensor)
        self._live = weight
        self._transposed = arch.transposed
        self.base = weight.detach().clone()

    @torch.no_grad()
    def compose(self, pairs: Sequence[FactorPair]) -> torch.Tensor:
        """The weight with the pairs added in order, in the layout and dtype of the base; nothing is changed."""
        if not pairs:
            return self.base
        total = self.base.float()
        for pair in pairs:
            change = torch.outer(pair.left.to(total.device), pair.right.to(total.device))  # [d_model, d_ff]
            total = total + (change.T if self._transposed else change)
        return total.to(self.base.dtype)

    @torch.no_grad()
    def install(self, weight: torch.Tensor) -> None:
        """Makes a composed weight the live one, in place."""
        self._live.copy_(weight)
