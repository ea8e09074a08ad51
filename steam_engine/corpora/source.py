"""What a person names as the source of the second moments, and whether it can be there. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from steam_engine.errors import CorpusError

DATASET = "hf:"
TEXT_FILES = (".txt", ".md")
LINE_FILES = (".jsonl",)


@dataclass(frozen=True)
class FileSource:
    """A file of UTF-8 text, or of JSON lines with a "text"."""

    path: Path

    @property
    def is_lines(self) -> bool:
        """Whether every line is a JSON object."""
        return self.path.suffix.lower() in LINE_FILES


@dataclass(frozen=True)
class DatasetSource:
    """A Hugging Face dataset: on the hub, or a local directory or file of one."""

    name: str
    config: str | None
    split: str

    @property
    def local(self) -> Path | None:
        """The directory or file, where `name` is one."""
        path = Path(self.name).expanduser()
        return path if path.exists() else None


def parse_source(text: str) -> FileSource | DatasetSource | None:
    """What a source stands for; "" is None, the model itself.

    Args:
        text: a path to a .txt, .md or .jsonl file, or hf:NAME[:CONFIG][:SPLIT] (no config: hf:NAME::SPLIT).

    Raises:
        CorpusError: there is no such file, it is empty or of another kind, or the dataset library is missing.
    """
    if not text:
        return None
    if text.startswith(DATASET):
        return _dataset(text)
    path = Path(text).expanduser()
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise CorpusError(
            f"The text for the statistics, {path}, {what}; give a .txt, .md or .jsonl file, or {DATASET}NAME for a "
            "Hugging Face dataset."
        )
    if path.suffix.lower() not in (*TEXT_FILES, *LINE_FILES):
        raise CorpusError(
            f"The statistics cannot be read from {path.name}; give a .txt or .md file, or a .jsonl file whose lines "
            'have a "text".'
        )
    if not path.stat().st_size:
        raise CorpusError(f"The text for the statistics, {path}, is empty; give another file.")
    return FileSource(path.absolute())


def _dataset(text: str) -> DatasetSource:
    name, config, split = ([*text.removeprefix(DATASET).split(":"), "", ""])[:3]
    if not name or text.count(":") > 3:
        raise CorpusError(f"'{text}' does not name a dataset; write {DATASET}NAME, or {DATASET}NAME:CONFIG:SPLIT.")
    if importlib.util.find_spec("datasets") is None:
        raise CorpusError(
            f"Reading {text} needs the library of Hugging Face datasets; install it with: pip install datasets"
        )
    return DatasetSource(name, config or None, split or "train")
