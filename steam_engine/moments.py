"""Second moments C = E[k k^T] of the keys of one layer: what the edited matrix is used for elsewhere.

A few times d_ff key vectors are enough (FastMEMIT, arXiv 2506.04226); they come from text that the model samples
itself, so nothing is downloaded. The result is cached on disk under everything that it depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from steam_engine.architecture import Architecture
from steam_engine.errors import EditCancelledError
from steam_engine.hooks import captured, stopping_after
from steam_engine.loading import LoadedModel
from steam_engine.packing import groups, pack
from steam_engine.sampling import OPENINGS, QUESTIONS, sample_contexts, sample_passages
from steam_engine.tokens import Row
from steam_engine.types import CancelToken, Progress, ProgressCallback

N_CONTEXTS = 8  # openings kept beside the moments; an edit uses the first few


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Statistics:
    """What the engine knows of a base model before any edit."""

    moments: torch.Tensor  # [d_ff, d_ff], fp32
    n_keys: int
    contexts: tuple[str, ...]


def cache_path(cache_dir: Path, fingerprint: str, layer: int, n_tokens: int) -> Path:
    """Where the statistics of a base model, layer, sample size and prompt set are kept."""
    corpus = hashlib.sha256(json.dumps([OPENINGS, QUESTIONS, n_tokens, N_CONTEXTS]).encode()).hexdigest()[:8]
    return cache_dir / f"moments-{fingerprint[:16]}-layer{layer}-{corpus}.safetensors"


def load_statistics(path: Path) -> Statistics | None:
    """Cached statistics, or None where there are none or the file is damaged (it is then made again)."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = file.metadata()
            return Statistics(file.get_tensor("moments"), int(meta["n_keys"]), tuple(json.loads(meta["contexts"])))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _save(path: Path, statistics: Statistics) -> None:
    """Keeps the statistics, where the disk lets: without the file they are sampled again at the next start."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    meta = {"n_keys": str(statistics.n_keys), "contexts": json.dumps(statistics.contexts)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"moments": statistics.moments.cpu().contiguous()}, temporary, metadata=meta)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        _LOG.warning("What was learnt about the model could not be kept in %s: %s", path.parent, error)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@torch.no_grad()
def key_moments(
    arch: Architecture, layers: Sequence[int], passages: Sequence[Sequence[int]]
) -> tuple[dict[int, torch.Tensor], int]:
    """Sum of k k^T [d_ff, d_ff] in fp32 over all tokens of the passages, for each layer, and the number of tokens.

    The first token of a passage is left out: as an attention sink it has a key of its own, hundreds of times
    larger than any other, which would drown them.
    """
    totals = {layer: torch.zeros(arch.d_ff, arch.d_ff, device=arch.device) for layer in layers}
    n = 0
    downs = {str(layer): arch.down_projection(layer) for layer in layers}
    for group in groups([Row(tuple(p), ()) for p in passages if len(p) > 1]):
        batch = pack(arch, [row.ids for row in group])
        with captured(inputs=downs) as seen, stopping_after(downs[str(max(layers))]):
            arch.base(**batch.inputs, use_cache=False)
        for layer, total in totals.items():
            keys = seen[str(layer)][batch.positions > 0].float()
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
) -> dict[int, Statistics]:
    """Statistics of layers of the base model: from the cache, or sampled now (a minute or two on two cores).

    Args:
        loaded: the model, unedited at `layers`.
        layers: whose keys; all that are not in the cache are read from the same passages.
        n_tokens: key vectors wanted.
        cache_dir: where results are kept; written atomically.
        progress, cancel: told after every batch; asked before every batch.

    Raises:
        EditCancelledError: `cancel` was set; what was sampled is thrown away.
    """
    arch, tokenizer = loaded.arch, loaded.tokenizer
    paths = {layer: cache_path(cache_dir, loaded.fingerprint, layer, n_tokens) for layer in layers}
    found: dict[int, Statistics] = {}
    for layer, path in paths.items():
        cached = load_statistics(path)
        if cached is not None and cached.moments.shape == (arch.d_ff, arch.d_ff):
            found[layer] = cached
    missing = [layer for layer in layers if layer not in found]
    if not missing:
        return found
    stage = "Getting to know the model (once)"
    progress(Progress(stage, 0, n_tokens))
    totals: dict[int, torch.Tensor] = {}
    n, batch = 0, 0
    while n < n_tokens:
        if cancel.is_set():
            raise EditCancelledError("The preparation was stopped; nothing has changed.")
        parts, count = key_moments(arch, missing, sample_passages(arch.model, tokenizer, batch, seed=0))
        totals = {layer: totals[layer] + part if batch else part for layer, part in parts.items()}
        n, batch = n + count, batch + 1
        progress(Progress(stage, min(n, n_tokens), n_tokens, "key vectors"))
    contexts = sample_contexts(arch.model, tokenizer, N_CONTEXTS)
    for layer in missing:
        found[layer] = Statistics(totals[layer] / n, n, contexts)
        _save(paths[layer], found[layer])
    return found
