"""A long text as short pieces, taken from all of it alike: the first few pieces already come from everywhere.

A text is a row of blocks, each with its texts. A round takes one piece of every block, and rounds go on until every
piece was taken once; nothing but the current block is in memory.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

from steam_engine.corpora.base import Passages
from steam_engine.loading import LoadedModel

PIECE = 512  # characters: about 120 tokens of English, as long as a sampled passage
SEARCH = 80  # characters in which a piece's end looks for white space
MAX_TOKENS = 256  # of a piece, in scripts that a tokenizer cuts finely
BATCH = 16  # pieces, about 2,000 tokens: a second or two between two looks at progress and cancel
VERSION = 1  # of the rules of this module: goes into every key

Block = tuple[int, Iterable[str]]  # (its number, its texts)


def spread(n: int) -> Iterator[int]:
    """All numbers below n in an order whose beginnings are evenly spread: steps of the golden ratio."""
    step = max(1, round(n * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, n) != 1:
        step += 1
    return (i * step % n for i in range(n))


def cut(text: str) -> list[str]:
    """Pieces of at most PIECE characters, cut at white space where there is some near; blank ones are left out."""
    pieces, at = [], 0
    while at < len(text):
        end = at + PIECE
        if end < len(text):
            space = max(text.rfind(white, end - SEARCH, end) for white in " \n\t")
            end = space if space > at else end
        if piece := text[at:end].strip():
            pieces.append(piece)
        at = end
    return pieces


def rounds(blocks: Callable[[], Iterable[Block]]) -> Iterator[str]:
    """Every piece of every block once: one of each block, then another one of each, and so on."""
    for turn in count():
        found = False
        for number, texts in blocks():
            pieces = [piece for text in texts for piece in cut(text)]
            if turn < len(pieces):
                random.Random(number).shuffle(pieces)
                found = True
                yield pieces[turn]
        if not found:
            return


def passages(loaded: LoadedModel, pieces: Iterator[str], start: int) -> Iterator[Passages]:
    """Pieces as token ids, BATCH at a time, without the first `start` batches."""
    limit = min(MAX_TOKENS, loaded.max_tokens)
    left = islice(pieces, start * BATCH, None)
    while batch := list(islice(left, BATCH)):
        yield [list(loaded.tokenizer(piece)["input_ids"])[:limit] for piece in batch]
