"""Sums of second moments on their way, kept on disk now and then, so that a stop or a kill costs little."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from steam_engine.tensor_files import keep, kept

SECONDS = 20.0  # between two times of keeping
SHARE = 20  # keeping takes at most one part in this many of the time: the sums of a large model are a gigabyte


@dataclass
class PartialSum:
    """The sum over the first batches of a corpus, for one layer."""

    total: torch.Tensor  # sum of k k^T, [d_ff, d_ff], fp32
    n: int = 0  # keys in it
    batches: int = 0


def partial_path(path: Path) -> Path:
    """Where the sum is kept for statistics that will be at `path`."""
    return path.with_suffix(".partial.safetensors")


def load_partial(path: Path, d_ff: int, device: torch.device) -> PartialSum:
    """What was kept, or an empty sum where there is nothing or it is damaged."""
    found = kept(path, "total")
    if found is not None and found[0].shape == (d_ff, d_ff):
        with contextlib.suppress(KeyError, ValueError):
            return PartialSum(found[0].to(device), int(found[1]["n"]), int(found[1]["batches"]))
    return PartialSum(torch.zeros(d_ff, d_ff, device=device))


class Keeper:
    """Keeps sums every SECONDS, or more seldom where the disk is slow.

    Args:
        paths: of the sums, by layer.
        sums: by layer; they may change between calls.
    """

    def __init__(self, paths: dict[int, Path], sums: dict[int, PartialSum]) -> None:
        self._paths, self._sums = paths, sums
        self._kept = {layer: one.batches for layer, one in sums.items()}
        self._wait, self._last = SECONDS, time.monotonic()

    def tick(self) -> None:
        """Keeps the sums when it is time."""
        if time.monotonic() - self._last >= self._wait:
            self.keep()

    def keep(self) -> None:
        """Keeps the sums that have grown since the last time."""
        begun = time.monotonic()
        for layer, one in self._sums.items():
            if one.batches != self._kept[layer]:
                keep(self._paths[layer], "total", one.total, {"n": str(one.n), "batches": str(one.batches)})
                self._kept[layer] = one.batches
        self._last = time.monotonic()
        self._wait = max(SECONDS, SHARE * (self._last - begun))

    def remove(self) -> None:
        """The sums are not needed any more."""
        for path in self._paths.values():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
