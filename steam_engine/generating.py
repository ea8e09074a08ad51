"""Greedy generation for several prompts at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from steam_engine.loading import LoadedModel
from steam_engine.tokens import pad_id


def generate(loaded: LoadedModel, rows: Sequence[Sequence[int]], n_tokens: int) -> list[list[int]]:
    """Up to `n_tokens` greedy token ids after each row, up to where the model ends its turn."""
    ends = _end_ids(loaded)
    pad = pad_id(loaded.tokenizer)
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=loaded.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=loaded.device)
    neutral = {"temperature": None, "top_p": None, "top_k": None, "repetition_penalty": None}
    with torch.no_grad():
        made = loaded.model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=n_tokens, do_sample=False, pad_token_id=pad,
            eos_token_id=sorted(ends) or None, **neutral,
        )  # fmt: skip
    new = [list(map(int, row)) for row in made[:, width:].tolist()]
    return [row[: next((i for i, token in enumerate(row) if token in ends), len(row))] for row in new]


def _end_ids(loaded: LoadedModel) -> set[int]:
    configured = loaded.model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return {int(i) for i in (*several, loaded.tokenizer.eos_token_id) if i is not None}
