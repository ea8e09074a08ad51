"""Second moments C = E[k k^T] of the keys of one layer: what the edited matrix is used for elsewhere.

A few times d_ff key vectors are enough (FastMEMIT, arXiv 2506.04226; docs/statistics.md); they come from text that the
model samples itself, so nothing is downloaded, or from a text of the user's. The result is cached on disk under
everything that it depends on, and so are sums on the way: what was stopped goes on where it was, to the same bits.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.corpora.base import Corpus
from steam_engine.corpora.sampled import SampledText
from steam_engine.errors import CorpusError, EditCancelledError
from steam_engine.hooks import captured, stopping_after
from steam_engine.loading import LoadedModel
from steam_engine.packing import groups, pack
from steam_engine.partial_sums import Keeper, PartialSum, load_partial, partial_path
from steam_engine.sampling import OPENINGS, sample_contexts
from steam_engine.tensor_files import keep, kept
from steam_engine.tokens import Row
from steam_engine.types import CancelToken, Progress, ProgressCallback

N_KEYS = 10_240
N_CONTEXTS = 8  # openings kept beside the moments; an edit uses the first few
STAGE = "Getting to know the model (once)"


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Statistics:
    """What the engine knows of a base model before any edit."""

    moments: torch.Tensor  # [d_ff, d_ff], fp32
    n_keys: int
    contexts: tuple[str, ...]


def cache_path(cache_dir: Path, fingerprint: str, layer: int, n_tokens: int, corpus_key: Any) -> Path:
    """Where the statistics of a base model, layer, sample size and text are kept."""
    key = hashlib.sha256(json.dumps([OPENINGS, corpus_key, n_tokens, N_CONTEXTS]).encode()).hexdigest()[:8]
    return cache_dir / f"moments-{fingerprint[:16]}-layer{layer}-{key}.safetensors"


def load_statistics(path: Path) -> Statistics | None:
    """Cached statistics, or None where there are none or the file is damaged (it is then made again)."""
    found = kept(path, "moments")
    if found is None:
        return None
    moments, meta = found
    try:
        return Statistics(moments, int(meta["n_keys"]), tuple(json.loads(meta["contexts"])))
    except (KeyError, TypeError, ValueError):
        return None


def save_statistics(path: Path, statistics: Statistics) -> None:
    """Keeps the statistics, where the disk lets: without the file they are made again at the next start."""
    meta = {"n_keys": str(statistics.n_keys), "contexts": json.dumps(statistics.contexts)}
    keep(path, "moments", statistics.moments, meta)


@torch.no_grad()
def key_moments(
    arch: Architecture, layers: Sequence[int], passages: Sequence[Sequence[int]]
) -> tuple[dict[int, torch.Tensor], int]:
    """Sum of k k^T [d_ff, d_ff] in fp32 over all tokens of the passages, for each layer, and the number of tokens.

    The first token of a passage is left out: as an attention sink it has a key of its own, hundreds of times
    larger than any other, which would drown them.
    """
    totals = {layer: torch.zeros(arch.d_ff, arch.d_ff, device=arch.device_of(layer)) for layer in layers}
    n = 0
    downs = {str(layer): arch.down_projection(layer) for layer in layers}
    for group in groups([Row(tuple(p), ()) for p in passages if len(p) > 1]):
        batch = pack(arch, [row.ids for row in group])
        with captured(inputs=downs) as seen, stopping_after(downs[str(max(layers))]):
            arch.base(**batch.inputs, use_cache=False)
        for layer, total in totals.items():
            keys = seen[str(layer)][(batch.positions > 0).to(total.device)].float()
            total += keys.T @ keys
        n += int((batch.positions > 0).sum())
    return totals, n


def statistics_of(
    loaded: LoadedModel,
    layers: Sequence[int],
    n_tokens: int,
    cache_dir: Path,
    progress: ProgressCallback,
    cancel: CancelToken,
    corpus: Corpus | None = None,
) -> dict[int, Statistics]:
    """Statistics of layers of the base model: from the cache, or made now (a minute or two on two cores).

    Args:
        loaded: the model, unedited at `layers`.
        layers: whose keys; all that are not in the cache are read from the same passages.
        n_tokens: key vectors wanted, 0 for the larger of N_KEYS and 2 x d_ff; a text that has fewer, but at least
            d_ff, is used with a warning.
        cache_dir: where results and sums on the way are kept; written atomically.
        progress, cancel: told after every batch; asked before every batch.
        corpus: the text; None for what the model samples itself.

    Raises:
        EditCancelledError: `cancel` was set; the next call goes on from there.
        CorpusError: the text cannot be read, or has fewer than d_ff key vectors: C would be singular, and cannot be
            solved with.
    """
    arch, corpus = loaded.arch, corpus or SampledText()
    n_tokens = n_tokens or max(N_KEYS, 2 * arch.d_ff)
    key = corpus.key(loaded, progress, cancel)
    paths = {layer: cache_path(cache_dir, loaded.fingerprint, layer, n_tokens, key) for layer in layers}
    found: dict[int, Statistics] = {}
    for layer, path in paths.items():
        cached = load_statistics(path)
        if cached is not None and cached.moments.shape == (arch.d_ff, arch.d_ff):
            found[layer] = cached
    missing = {layer: partial_path(path) for layer, path in paths.items() if layer not in found}
    if not missing:
        return found
    sums = {layer: load_partial(path, arch.d_ff, arch.device) for layer, path in missing.items()}
    keeper = Keeper(missing, sums)
    _fill(loaded, sums, n_tokens, corpus, keeper, progress, cancel)
    n = min(one.n for one in sums.values())
    if n < n_tokens:
        _LOG.warning("%s has %d of the %d key vectors that were wanted; it is used as it is.", corpus.name, n, n_tokens)
    contexts = sample_contexts(arch.model, loaded.tokenizer, N_CONTEXTS)
    for layer, one in sums.items():
        found[layer] = Statistics(one.total / one.n, one.n, contexts)
        save_statistics(paths[layer], found[layer])
    keeper.remove()
    return found


def _fill(
    loaded: LoadedModel,
    sums: dict[int, PartialSum],
    n_tokens: int,
    corpus: Corpus,
    keeper: Keeper,
    progress: ProgressCallback,
    cancel: CancelToken,
) -> None:
    """Adds batches to the sums until each has its keys, or the text ends; a layer that is ahead waits."""

    def tell() -> None:
        n = min(one.n for one in sums.values())
        progress(Progress(STAGE, min(n, n_tokens), n_tokens, f"key vectors, from {corpus.name}"))

    tell()
    start = min(one.batches for one in sums.values())
    batches = corpus.batches(loaded, start)
    number = start
    while any(one.n < n_tokens for one in sums.values()):
        if cancel.is_set():
            keeper.keep()
            raise EditCancelledError(
                "The preparation was stopped; nothing has changed. The next one goes on from here."
            )
        passages = next(batches, None)
        if passages is None:
            break
        behind = [layer for layer, one in sums.items() if one.batches == number and one.n < n_tokens]
        parts, count = key_moments(loaded.arch, behind, passages) if behind else ({}, 0)
        for layer, part in parts.items():
            one = sums[layer]
            one.total, one.n, one.batches = one.total + part, one.n + count, number + 1
        number += 1
        keeper.tick()
        tell()
    n, d_ff = min(one.n for one in sums.values()), loaded.arch.d_ff
    if n < min(n_tokens, d_ff):
        keeper.remove()
        raise CorpusError(
            f"The text of {corpus.name} is too short: it has {n:,} key vectors (about one a word), and this model "
            f"needs at least {d_ff:,}, better {n_tokens:,}. Give a longer text, or leave --statistics out."
        )
