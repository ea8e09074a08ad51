"""The most memory that was in use while something ran."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

_INTERVAL = 0.02  # seconds between looks at the process


@dataclass
class Peak:
    """Filled in when the context ends."""

    mib: float = 0.0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Of the device where it counts by itself (cuda), or of this process."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.mib = torch.cuda.max_memory_allocated(device) / 2**20
        return
    process, ended, most = psutil.Process(), threading.Event(), [0]

    def look() -> None:
        while True:
            most[0] = max(most[0], process.memory_info().rss)
            if ended.wait(_INTERVAL):
                return

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.mib = most[0] / 2**20
