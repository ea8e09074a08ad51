"""Generation for several prompts at once, without what a model's own configuration adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from steam_engine.loading import LoadedModel
from steam_engine.tokens import pad_id


def generate(loaded: LoadedModel, rows: Sequence[Sequence[int]], n_tokens: int) -> list[list[int]]:
    """Up to `n_tokens` greedy token ids after each row, up to where the model ends its turn."""
    ends = end_ids(loaded)
    made = continued(loaded, rows, n_tokens)
    return [row[: next((i for i, token in enumerate(row) if token in ends), len(row))] for row in made]


@torch.no_grad()
def continued(loaded: LoadedModel, rows: Sequence[Sequence[int]], n_tokens: int, **extra: Any) -> list[list[int]]:
    """The new token ids of every row, all of one length: what comes after an end is padding.

    Rows are padded on the left, to end together. Generation is greedy unless `extra` samples.

    Args:
        loaded: the model.
        rows: token ids of the prompts.
        n_tokens: at most, for every row.
        extra: further arguments of transformers' `generate`.
    """
    pad = pad_id(loaded.tokenizer)
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=loaded.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=loaded.device)
    plain = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None, "repetition_penalty": None}
    made = loaded.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=n_tokens, pad_token_id=pad,
        eos_token_id=sorted(end_ids(loaded)) or None, **{**plain, **extra},
    )  # fmt: skip
    return [list(map(int, row)) for row in made[:, width:].tolist()]


def end_ids(loaded: LoadedModel) -> set[int]:
    """Tokens with which the model ends its turn."""
    configured = loaded.model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return {int(i) for i in (*several, loaded.tokenizer.eos_token_id) if i is not None}
