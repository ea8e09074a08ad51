"""How long work tells where it is, and learns that it is to stop."""

from __future__ import annotations

from dataclasses import dataclass

from steam_engine.errors import ExportError
from steam_engine.types import CancelToken, Progress, ProgressCallback


@dataclass(frozen=True)
class Work:
    """One export under way."""

    progress: ProgressCallback
    cancel: CancelToken

    def go_on(self) -> None:
        """Raises ExportError when somebody has stopped the export."""
        if self.cancel.is_set():
            raise ExportError("The export was stopped; nothing is left of it.")

    def tell(self, stage: str, done: int = 0, total: int = 0, detail: str = "") -> None:
        """A step begins. Raises ExportError as `go_on`."""
        self.go_on()
        self.progress(Progress(stage, done, total, detail))
