"""The vector index: which stored texts are near a vector. It only copies what SQLite says.

Vectors are kept under a number made from the text itself. So the index agrees with the facts exactly when
both have the same set of numbers, and a text that changed is a text that is missing plus one too many.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

INDEX_FILE = "facts.faiss"


def text_number(text: str) -> int:
    """Return the number (63 bits) under which the vector of `text` is kept."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class FactIndex:
    """An exact inner-product index on disk, keyed by text number."""

    def __init__(self, path: Path, dimension: int) -> None:
        self._path = path
        self._dimension = dimension
        self._index: faiss.IndexIDMap2 = self._empty()
        self._numbers: set[int] = set()

    def load(self, sha256: str | None) -> bool:
        """Read the file; return False (and start empty) unless it is the one that was written last.

        `sha256` is what `save` returned then.
        """
        self._index = self._empty()
        self._numbers = set()
        if sha256 is None:
            return False
        try:
            content = self._path.read_bytes()
        except OSError:
            return False
        if hashlib.sha256(content).hexdigest() != sha256:
            return False
        index = faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
        if not isinstance(index, faiss.IndexIDMap2) or index.d != self._dimension:
            return False
        self._index = index
        self._numbers = set(faiss.vector_to_array(index.id_map).tolist())
        return True

    def save(self) -> str:
        """Write the file, wholly or not at all, and return its sha256. Raises OSError."""
        temporary = self._path.with_suffix(".tmp")
        try:
            faiss.write_index(self._index, str(temporary))
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.replace(self._path)
        except RuntimeError as error:  # what faiss says of a file that it cannot write
            raise OSError(f"{temporary} could not be written") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        return digest

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    @property
    def numbers(self) -> frozenset[int]:
        """The text numbers that have a vector."""
        return frozenset(self._numbers)

    def add(self, numbers: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Add unit vectors [n, dimension] under new numbers."""
        if not numbers:
            return
        self._index.add_with_ids(np.ascontiguousarray(vectors), np.asarray(numbers, dtype=np.int64))
        self._numbers.update(numbers)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove the vectors of these numbers."""
        gone = sorted(numbers)
        if not gone:
            return
        self._index.remove_ids(faiss.IDSelectorBatch(np.asarray(gone, dtype=np.int64)))
        self._numbers.difference_update(gone)

    def search(self, vector: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Return up to `k` (number, cosine), nearest first, for a unit vector [dimension]."""
        k = min(k, len(self._numbers))
        if k <= 0:
            return []
        scores, numbers = self._index.search(vector.reshape(1, -1), k)
        return [(int(number), float(score)) for number, score in zip(numbers[0], scores[0], strict=True)]

    def _empty(self) -> faiss.IndexIDMap2:
        return faiss.IndexIDMap2(faiss.IndexFlatIP(self._dimension))
