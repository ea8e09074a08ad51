"""The embedded GGUF as an ordinary checkpoint, converted once: reading it takes half a minute, the checkpoint a second.

Other GGUF files are read anew at every start: in full precision they take several times their size on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

DIGESTS = "converted.json"  # {file name: sha256} of everything else in the folder


def _digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.iterdir():
        if path.name != DIGESTS:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def is_intact(folder: Path) -> bool:
    """The folder holds a conversion, to the byte as it was written."""
    try:
        return bool(_digests(folder) == json.loads((folder / DIGESTS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def converted(folder: Path, read: Callable[[], tuple[Any, Any]]) -> Path | None:
    """The folder of the converted checkpoint, made now where it is missing or damaged.

    Args:
        folder: its place, named after the source's digest.
        read: gives the source's (model, tokenizer) in fp32.

    Returns:
        `folder`, or None where it cannot be written (no space, no permission).
    """
    if is_intact(folder):
        return folder
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        model, tokenizer = read()
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / DIGESTS).write_text(json.dumps(_digests(temporary)), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster
            temporary.rename(folder)
    except (OSError, SafetensorError):
        return None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder if is_intact(folder) else None
