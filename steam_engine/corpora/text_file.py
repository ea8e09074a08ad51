"""A file of text or of JSON lines, a block at a time from all over it."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from steam_engine.corpora.base import Passages, tokenizer_digest
from steam_engine.corpora.pieces import SEARCH, VERSION, Block, passages, rounds, spread
from steam_engine.corpora.source import FileSource
from steam_engine.errors import CorpusError, EditCancelledError
from steam_engine.loading import LoadedModel
from steam_engine.types import CancelToken, Progress, ProgressCallback

BLOCK = 65_536  # bytes
READ = 2**22  # bytes at once while the content is hashed
MEGA = 10**6


class TextFile:
    """The text of a file; it must not change between `key` and the last batch."""

    def __init__(self, source: FileSource) -> None:
        self.source = source
        self.name = source.path.name
        self._as_hashed: tuple[int, int] | None = None

    def key(self, loaded: LoadedModel, progress: ProgressCallback, cancel: CancelToken) -> Any:
        """The content's hash; the whole file is read once for it, and must be UTF-8."""
        digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
        lines, done, stage = 1, 0, f"Reading {self.name}"
        try:
            with self.source.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._as_hashed = _state(file)
                while data := file.read(READ):
                    if cancel.is_set():
                        raise EditCancelledError("The preparation was stopped; nothing has changed.")
                    digest.update(data)
                    lines += decoder.decode(data).count("\n")
                    done += len(data)
                    progress(Progress(stage, done // MEGA, max(1, size // MEGA), "MB"))
                decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            line = lines + error.object[: error.start].count(b"\n")
            raise CorpusError(
                f"{self.source.path} is not UTF-8 text (line {line}); save it as UTF-8, or give another file."
            ) from error
        except OSError as error:
            raise self._unreadable(error) from error
        kind = "lines" if self.source.is_lines else "text"
        return ["file", kind, digest.hexdigest(), tokenizer_digest(loaded.tokenizer), BLOCK, VERSION]

    def batches(self, loaded: LoadedModel, start: int = 0) -> Iterator[Passages]:
        """See `Corpus.batches`."""
        return passages(loaded, rounds(self._blocks), start)

    def _blocks(self) -> Iterator[Block]:
        try:
            with self.source.path.open("rb") as file:
                for number in spread(-(-os.fstat(file.fileno()).st_size // BLOCK)):
                    if self._as_hashed not in (None, _state(file)):
                        raise CorpusError(
                            f"{self.source.path} was changed while it was read; try again when it stays as it is."
                        )
                    yield number, (self._records if self.source.is_lines else self._text)(file, number)
        except OSError as error:
            raise self._unreadable(error) from error

    def _text(self, file: BinaryIO, number: int) -> list[str]:
        """The block's text, from its first whole word on."""
        file.seek(number * BLOCK)
        text = file.read(BLOCK).decode("utf-8", errors="ignore")  # characters may be cut at its ends alone
        if number == 0:
            return [text.removeprefix("\ufeff")]
        words = text[:SEARCH].split(maxsplit=1)
        return [text[text.index(words[1]) :] if len(words) > 1 else text]

    def _records(self, file: BinaryIO, number: int) -> list[str]:
        """Texts of the records that begin in the block."""
        begin, end = number * BLOCK, (number + 1) * BLOCK
        file.seek(max(0, begin - 1))
        if begin:
            file.readline()  # it begins in an earlier block
        texts = []
        while (at := file.tell()) < end and (line := file.readline()):
            if line.strip():
                texts.append(self._record(file, at, line))
        return texts

    def _record(self, file: BinaryIO, at: int, line: bytes) -> str:
        try:
            record = json.loads(line.decode("utf-8-sig"))
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("text"), str):
            return str(record["text"])
        what = 'has no "text" with a string' if isinstance(record, dict) else "is not a JSON object"
        raise CorpusError(
            f"Line {_line_number(file, at)} of {self.source.path} {what}; every line of a .jsonl file must look like "
            '{"text": "..."}.'
        )

    def _unreadable(self, error: OSError) -> CorpusError:
        return CorpusError(
            f"{self.source.path} cannot be read ({error.strerror or error}); check the file, or give another one."
        )


def _state(file: BinaryIO) -> tuple[int, int]:
    now = os.fstat(file.fileno())
    return now.st_size, now.st_mtime_ns


def _line_number(file: BinaryIO, at: int) -> int:
    """1-based number of the line that begins at a byte."""
    file.seek(0)
    lines = 1
    while at and (data := file.read(min(READ, at))):
        lines += data.count(b"\n")
        at -= len(data)
    return lines
