"""Disks that refuse."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes, as if the disk were full there."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@contextmanager
def unusable(directory: Path) -> Iterator[None]:
    """Nothing in `directory` can be read, written or removed, whoever asks: a file has its name."""
    aside = directory.with_name(f"{directory.name}-aside")
    directory.rename(aside)
    directory.write_text("in the way")
    try:
        yield
    finally:
        directory.unlink()
        aside.rename(directory)
