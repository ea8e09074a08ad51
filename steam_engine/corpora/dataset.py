"""A Hugging Face dataset, streamed: a record at a time, and nothing is kept on disk by it.

A stream cannot be entered in its middle, so records of the hub come from a shuffled order of its files and a buffer
of a thousand records, not evenly from all of it. A dataset saved with `save_to_disk` can be, and is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from steam_engine.corpora.base import Passages, tokenizer_digest
from steam_engine.corpora.pieces import VERSION, Block, passages, rounds, spread
from steam_engine.corpora.source import DatasetSource
from steam_engine.errors import CorpusError, EditCancelledError
from steam_engine.loading import LoadedModel
from steam_engine.types import CancelToken, Progress, ProgressCallback

BUFFER = 1000  # records that are shuffled
READ = 2**22  # bytes at once while local files are hashed
BUILDERS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".arrow": "arrow", ".txt": "text"}


class HubDataset:
    """The column "text" of one split."""

    def __init__(self, source: DatasetSource) -> None:
        self.source = source
        self.name = f"the dataset {source.name}"
        self._revision: str | None = None

    def key(self, loaded: LoadedModel, progress: ProgressCallback, cancel: CancelToken) -> Any:
        """Name, config, split and revision; for local files the hash of all of them instead of a revision."""
        local = self.source.local
        if local is not None:
            where = ["local", _content(local, progress, cancel)]
        else:
            self._revision = self._latest()
            where = [self.source.name, self._revision]
        tokenizer = tokenizer_digest(loaded.tokenizer)
        return ["dataset", *where, self.source.config, self.source.split, tokenizer, BUFFER, VERSION]

    def batches(self, loaded: LoadedModel, start: int = 0) -> Iterator[Passages]:
        """See `Corpus.batches`."""
        return passages(loaded, rounds(self._blocks), start)

    def _latest(self) -> str:
        from huggingface_hub import dataset_info

        try:
            return str(dataset_info(self.source.name).sha)
        except Exception as error:  # network, access and name errors have no common base
            raise self._unreadable(error) from error

    def _blocks(self) -> Iterator[Block]:
        records = self._records()
        number = 0
        while True:
            try:
                record = next(records)
            except StopIteration:
                return
            except Exception as error:  # so have those of the formats that are read
                raise self._unreadable(error) from error
            if "text" not in record:
                raise CorpusError(
                    f'{self.name[:1].upper()}{self.name[1:]} has no column "text"; it has '
                    f'{", ".join(sorted(record))}. Rename one to "text" and give the new dataset, or another one.'
                )
            yield number, [record["text"]] if isinstance(record["text"], str) else []
            number += 1

    def _records(self) -> Iterator[dict[str, Any]]:
        import datasets

        local = self.source.local
        if local is not None and _is_saved(local):
            saved = datasets.load_from_disk(str(local))
            if isinstance(saved, datasets.DatasetDict):
                if self.source.split not in saved:
                    raise ValueError(f"it has no split '{self.source.split}' but {', '.join(saved)}")
                saved = saved[self.source.split]
            elif self.source.split not in ("train", str(saved.split)):
                raise ValueError(f"it has no split '{self.source.split}', but one part")
            yield from (saved[i] for i in (spread(len(saved)) if len(saved) else ()))
            return
        name, files = self.source.name, None
        if local is not None:
            name = str(local)
            if local.is_file():
                if local.suffix.lower() not in BUILDERS:
                    raise ValueError(f"a file must be one of {', '.join(BUILDERS)}")
                name, files = BUILDERS[local.suffix.lower()], str(local)
        stream = datasets.load_dataset(
            name,
            self.source.config,
            split=self.source.split,
            data_files=files,
            revision=self._revision,
            streaming=True,
        )
        yield from stream.shuffle(seed=0, buffer_size=BUFFER)

    def _unreadable(self, error: Exception) -> CorpusError:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        return CorpusError(
            f"{self.name[:1].upper()}{self.name[1:]} cannot be read: {reason} Check its name, config and split "
            "(hf:NAME:CONFIG:SPLIT) and the network, or give a local copy: hf:DIRECTORY."
        )


def _is_saved(path: Path) -> bool:
    """Whether a directory was written by `save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _files(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def _content(path: Path, progress: ProgressCallback, cancel: CancelToken) -> str:
    """Hex sha256 over names and contents of all files."""
    files = list(_files(path))
    total = sum(file.stat().st_size for file in files) // 10**6
    digest, done = hashlib.sha256(), 0
    try:
        for one in files:
            digest.update(f"{one.relative_to(path)}:{one.stat().st_size}:".encode())
            with one.open("rb") as file:
                while data := file.read(READ):
                    if cancel.is_set():
                        raise EditCancelledError("The preparation was stopped; nothing has changed.")
                    digest.update(data)
                    done += len(data)
                    progress(Progress(f"Reading {path.name}", done // 10**6, max(1, total), "MB"))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror or error}); check it, or give another.") from error
    return digest.hexdigest()
