"""The shape of a source of text: batches of passages that can be gone on with from any batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Protocol

from steam_engine.loading import LoadedModel
from steam_engine.types import CancelToken, ProgressCallback

Passages = list[list[int]]  # token ids


class Corpus(Protocol):
    """Text whose keys the second moments are taken of."""

    name: str  # for people

    def key(self, loaded: LoadedModel, progress: ProgressCallback, cancel: CancelToken) -> Any:
        """What can be written as JSON and changes whenever the passages do, on the same model.

        Raises:
            CorpusError: the source cannot be read.
            EditCancelledError: `cancel` was set.
        """
        ...

    def batches(self, loaded: LoadedModel, start: int = 0) -> Iterator[Passages]:
        """Batches of passages from number `start` on, the same ones at every call; ends where the text does.

        Raises:
            CorpusError: the source cannot be read.
        """
        ...


def tokenizer_digest(tokenizer: Any) -> str:
    """Hex sha256 of how a tokenizer cuts text; not of its padding and truncation, which its use changes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = json.loads(backend.to_str()) if backend is not None else sorted(tokenizer.get_vocab().items())
    if isinstance(state, dict):
        state.pop("padding", None)
        state.pop("truncation", None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
