"""One tensor a file that can be made again: written whole or not at all, and never trusted without its checksum."""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

_LOG = logging.getLogger(__name__)
_CHECKSUM = "crc32"


def keep(path: Path, name: str, tensor: torch.Tensor, meta: Mapping[str, str]) -> None:
    """Writes a tensor, where the disk lets; a warning where it does not."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    data = tensor.cpu().contiguous()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: data}, temporary, metadata={**meta, _CHECKSUM: _checksum(data)})
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        _LOG.warning("What was learnt about the model could not be kept in %s: %s", path.parent, error)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def kept(path: Path, name: str) -> tuple[torch.Tensor, dict[str, str]] | None:
    """A tensor and what was written beside it; None where there is none or the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = dict(file.metadata() or {})
            tensor: torch.Tensor = file.get_tensor(name)
    except (OSError, SafetensorError, ValueError):
        return None
    return (tensor, meta) if meta.get(_CHECKSUM) in (None, _checksum(tensor)) else None


def _checksum(tensor: torch.Tensor) -> str:
    return str(zlib.crc32(tensor.numpy().data.cast("B")))
