"""Where everything that a person would miss is kept on disk, and that only one process uses it at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import platformdirs
from filelock import FileLock, Timeout

from assistant.errors import WorkspaceError


@dataclass(frozen=True)
class Workspace:
    """A directory that is locked while it is in use; after a crash the system frees the lock by itself."""

    root: Path
    lock: FileLock

    @property
    def journal(self) -> Path:
        """Directory of the edits."""
        return self.root / "journal"

    @property
    def store(self) -> Path:
        """Directory of the known facts."""
        return self.root / "store"

    @property
    def exports(self) -> Path:
        """Directory of the checkpoints that were taken away."""
        return self.root / "exports"

    def close(self) -> None:
        """Let another process use it."""
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_workspace(directory: Path | None) -> Workspace:
    """Make the directory when it is missing (None: the user's data directory) and lock it.

    Raises:
        WorkspaceError: it cannot be written, or another process uses it.
    """
    root = (directory or Path(platformdirs.user_data_dir("amend", appauthor=False))).expanduser().absolute()
    try:
        for part in (root, root / "journal", root / "store", root / "exports"):
            part.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / "in-use.lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise WorkspaceError(
            f"Another Amend is using the workspace {root}; stop that one, or choose another with --workspace."
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WorkspaceError(
            f"The workspace {root} cannot be written ({reason}); choose another with --workspace."
        ) from error
    return Workspace(root, lock)


def cache_directory() -> Path:
    """Where what can be computed again is kept, for all workspaces."""
    return Path(platformdirs.user_cache_dir("amend", appauthor=False))
