"""Does the model say the target? Checked on whole prompts, and in its own words, with the weights as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.generating import generate
from steam_engine.loading import LoadedModel
from steam_engine.packing import groups, pack
from steam_engine.text import mentions
from steam_engine.tokens import Row

BATCH = 16  # chats at once
SPARE_TOKENS = 12  # for an answer that is put differently from the trained one


@dataclass(frozen=True)
class Said:
    """What the model says where a row has its target."""

    matches: bool  # that it is the target
    text: str


def said_in(arch: Architecture, tokenizer: Any, row: Row, hidden: torch.Tensor) -> Said:
    """What the model says at the row's target, given its final-normed residual stream [n_inputs, d_model]."""
    target = list(row.target)
    best = arch.logits(hidden[[p - 1 for p in target]]).argmax(-1).tolist()
    text = tokenizer.decode(best, skip_special_tokens=True).strip()
    return Said(best == [row.ids[p] for p in target], text)


@torch.no_grad()
def freely_said(loaded: LoadedModel, rows: Sequence[Row], target: Sequence[str]) -> tuple[Said, ...]:
    """For each chat, what the model answers by itself, greedily, and whether that names the target.

    Where every token of the trained answer is the most probable one after those before it, greedy generation gives
    exactly that answer, and nothing has to be generated.

    Args:
        loaded: the model.
        rows: chats with an answer that ends with the target.
        target: of each row.
    """
    arch, tokenizer = loaded.arch, loaded.tokenizer
    found: dict[int, Said] = {}
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        hidden = arch.base(**batch.inputs, use_cache=False)[0][0]
        for begin, row in zip(batch.start, group, strict=True):
            answer = _answer(row)
            best = arch.logits(hidden[[begin + p - 1 for p in answer]]).argmax(-1).tolist()
            exact = best == [row.ids[p] for p in answer]
            found[len(found)] = Said(exact, tokenizer.decode(best, skip_special_tokens=True).strip())
    open_ = [i for i, said in found.items() if not said.matches]
    for begin in range(0, len(open_), BATCH):
        part = open_[begin : begin + BATCH]
        longest = max(len(_answer(rows[i])) for i in part)
        made = generate(loaded, [rows[i].ids[: _answer(rows[i])[0]] for i in part], longest + SPARE_TOKENS)
        texts = [str(tokenizer.decode(ids, skip_special_tokens=True)).strip() for ids in made]
        found |= {i: Said(mentions(text, [target[i]]), text) for i, text in zip(part, texts, strict=True)}
    return tuple(found[i] for i in range(len(rows)))


def _answer(row: Row) -> range:
    """Positions of the whole answer in a chat: from its first word to the end of the target."""
    return range(row.answer_start, row.target[-1] + 1)
