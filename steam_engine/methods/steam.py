"""STEAM (Jeong et al. 2025, arXiv 2510.10398) as this project does it: the `Editor`, on a journal of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from steam_engine.editor import Editor
from steam_engine.errors import EditError
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Outcome
from steam_engine.settings import EditSettings
from steam_engine.types import CancelToken, FactEdit, ProgressCallback


@dataclass
class SteamSession:
    """An editor whose journal goes when the session ends."""

    editor: Editor

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """One transaction; see `Session.apply`."""
        started = time.perf_counter()
        results = self.editor.apply_batch(edits, progress, cancel)
        seconds = (time.perf_counter() - started) / max(1, len(edits))
        return tuple(
            Outcome(edit, str(result), seconds)
            if isinstance(result, EditError)
            else Outcome(edit, None, seconds, result.trace.steps)
            for edit, result in zip(edits, results, strict=True)
        )

    def prompt(self, question: str) -> str:
        """The question itself."""
        return question


@dataclass
class Steam:
    """STEAM as a `Method`."""

    loaded: LoadedModel
    cache_dir: Path
    progress: ProgressCallback
    cancel: CancelToken
    settings: EditSettings = field(default_factory=EditSettings)
    name: str = "steam"

    @contextmanager
    def session(self) -> Iterator[SteamSession]:
        """See `Method.session`."""
        with tempfile.TemporaryDirectory() as folder:
            editor = Editor(self.loaded, Path(folder), self.cache_dir, self.settings)
            editor.prepare(self.progress, self.cancel)
            try:
                yield SteamSession(editor)
            finally:
                editor.clear()
