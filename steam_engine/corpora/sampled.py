"""Text that the model samples itself: nothing has to be there, and it never ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from steam_engine.corpora.base import Passages
from steam_engine.loading import LoadedModel
from steam_engine.sampling import QUESTIONS, sample_passages
from steam_engine.types import CancelToken, ProgressCallback


class SampledText:
    """Prose that the model continues and questions that it answers, batch about, each batch from its own seed."""

    name = "the model's own words"

    def key(self, loaded: LoadedModel, progress: ProgressCallback, cancel: CancelToken) -> Any:
        """The questions; the openings are in every key, since the contexts come from them."""
        return QUESTIONS

    def batches(self, loaded: LoadedModel, start: int = 0) -> Iterator[Passages]:
        """See `Corpus.batches`."""
        for batch in count(start):
            yield sample_passages(loaded.arch.model, loaded.tokenizer, batch, seed=0)
