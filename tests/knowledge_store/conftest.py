"""Stores for the tests: one with the seed for reading, fresh ones with a light encoder for writing."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from knowledge_store.encoder import DIMENSION, SentenceEncoder
from knowledge_store.store import KnowledgeStore


class WordEncoder(SentenceEncoder):
    """Counts words instead of understanding them, and remembers what it was asked to encode."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[str] = []

    @property
    def identity(self) -> str:
        return "words"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded.extend(texts)
        vectors = np.full((len(texts), DIMENSION), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, zlib.crc32(word.encode()) % DIMENSION] += 1.0
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeStore]:
    """The seed with the real encoder. Tests only read from it."""
    with KnowledgeStore.open(tmp_path_factory.mktemp("seeded")) as store:
        yield store


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[KnowledgeStore]:
    """A new store with the seed, to be written to."""
    with KnowledgeStore.open(tmp_path / "store", WordEncoder()) as store:
        yield store
