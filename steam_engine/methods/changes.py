"""Weight changes of a method that may be any matrix, and taking all of them back exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from steam_engine.architecture import Architecture
from steam_engine.weights import EditedWeights


class Changes:
    """Down projections that are changed by adding to them, summed in fp32 and cast once a change."""

    def __init__(self, arch: Architecture) -> None:
        self._arch = arch
        self._weights = EditedWeights(arch)
        self._sums: dict[int, torch.Tensor] = {}

    def base(self, layer: int) -> torch.Tensor:
        """The layer's weight before any change, in the model's layout."""
        return self._weights.base(layer)

    @torch.no_grad()
    def add(self, layer: int, change: torch.Tensor) -> None:
        """Adds `change` [d_model, d_ff] to the layer's weight."""
        base = self.base(layer)
        laid = (change.T if self._arch.transposed else change).to(base.device, torch.float32)
        self._sums[layer] = self._sums.get(layer, torch.zeros_like(base, dtype=torch.float32)) + laid
        self._install()

    def saved(self) -> dict[int, torch.Tensor]:
        """What has been added so far; for `restore`."""
        return dict(self._sums)

    def restore(self, saved: dict[int, torch.Tensor]) -> None:
        """Goes back to what `saved` gave."""
        self._sums = dict(saved)
        self._install()

    def _install(self) -> None:
        bases = {layer: self.base(layer) for layer in self._sums}
        self._weights.install({n: (base.float() + self._sums[n]).to(base.dtype) for n, base in bases.items()})


@contextmanager
def changing(arch: Architecture) -> Iterator[Changes]:
    """Changes that are gone when the context ends, to the bit."""
    changes = Changes(arch)
    try:
        yield changes
    finally:
        changes.restore({})
