"""The one place that touches transformers' key/value caches, whose names and classes keep changing."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class _FrozenLayer(DynamicLayer):  # type: ignore[misc]
    """A layer cache that joins new states to a fixed prefix without keeping them.

    Every optimisation step starts from the same prefix, and no step's graph leaks into the next.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Prefix and new states, [batch, n_heads, n_prefix + n_new, d_head] each."""
        return torch.cat([self.keys, key_states], dim=-2), torch.cat([self.values, value_states], dim=-2)


def new_cache() -> Any:
    """An empty cache that keeps every position, also of sliding-window layers."""
    return DynamicCache()


def packed_prefix(parts: Sequence[tuple[Any, Sequence[tuple[int, int]]]]) -> Any:
    """A cache that always holds the prefixes of some rows one after another, whatever is run on it.

    Args:
        parts: pairs (cache, spans): a cache filled with packed prompts, [1, n_heads, n_tokens, d_head] a layer, and
            (index of its first token, length of its prefix) of each prompt, in the order in which they are packed.

    Returns:
        A cache of one sequence, [1, n_heads, sum of lengths, d_head] a layer.
    """

    def packed(layer: int, name: str) -> torch.Tensor:
        pieces = [
            getattr(cache.layers[layer], name)[:, :, start : start + n] for cache, spans in parts for start, n in spans
        ]
        return torch.cat(pieces, dim=-2).detach()

    frozen = DynamicCache()
    n_layers = len(parts[0][0].layers)
    frozen.layers = [_FrozenLayer(packed(i, "keys"), packed(i, "values")) for i in range(n_layers)]
    return frozen


def cache_argument(module: Any, cache: Any) -> dict[str, Any]:
    """The keyword under which this release of transformers takes a cache."""
    parameters = inspect.signature(module.forward).parameters
    return {"cache" if "cache" in parameters else "past_key_values": cache, "use_cache": True}
