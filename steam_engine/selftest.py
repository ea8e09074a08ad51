"""Does the engine's short forward pass give a model's own answers? Asked where the family is not in the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from steam_engine.errors import UnsupportedModelError
from steam_engine.families import supported
from steam_engine.loading import LoadedModel
from steam_engine.suffix import Prefill
from steam_engine.tokens import MarkedText, Row, encode, sentence

_PROMPTS = (
    ("The capital of {} is", "France"), ("The official language that is spoken in {} is", "Brazil"),
    ("Many people say that in the early days the capital of {} was a city", "Germany"),
)  # fmt: skip
STRENGTH = 8.0  # of the change that both ways must see, in norms of the value
# Errors as shares of the change. Halves round differently in packed and in plain passes: on tiny models up to 0.05 was
# measured in bfloat16, and at least 0.17 where the engine does not fit.
TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
HALF_TOLERANCE = 0.1


@torch.no_grad()
def check_suffix(loaded: LoadedModel, layer: int) -> None:
    """Compares the layers above `layer`, run alone on packed prompts, with whole runs of the model.

    Both without a change and with one of the value at the subject: a model whose layers do more than add their parts
    to a residual stream, or that counts positions in its own way, gives other numbers.

    Raises:
        UnsupportedModelError: they differ.
    """
    try:
        error = _difference(loaded, layer)
    except Exception as problem:  # code of any family may stumble over a part of itself in any way
        error, reason = float("inf"), f" ({type(problem).__name__})"
    else:
        reason = ""
    if not error <= TOLERANCE.get(loaded.dtype, HALF_TOLERANCE):
        raise UnsupportedModelError(
            f"Models of the family '{loaded.arch.family}' cannot be edited: their upper layers, run alone, do not give "
            f"the model's own answers{reason}. {supported()}"
        )


def _difference(loaded: LoadedModel, layer: int) -> float:
    """The largest error of a logit, as a share of what is to be seen: their spread, or the change by a delta."""
    arch = loaded.arch
    rows = [encode(loaded.tokenizer, MarkedText(sentence(text, name)), (name,), chat=False) for text, name in _PROMPTS]
    prefill = Prefill(arch, layer, rows)
    suffix = prefill.model()
    direction = torch.randn(arch.d_model, generator=torch.Generator().manual_seed(0)).to(prefill.values.device)
    delta = STRENGTH * prefill.values.float().norm(dim=-1).mean() * direction / direction.norm()
    worst = 0.0
    moved = suffix(delta[None]).hidden
    for r, row in enumerate(rows):
        own = slice(suffix.flat(r, row.subjects[0]), suffix.flat(r, row.n_inputs - 1) + 1)
        plain = _whole(loaded, layer, row, torch.zeros_like(delta))
        changed = _whole(loaded, layer, row, delta)
        for ours, theirs, seen in (
            (suffix.base_hidden, plain, plain - plain.mean(-1, keepdim=True)),
            (moved, changed, changed - plain),
        ):
            error = (arch.logits(ours[own]).to(theirs.device) - theirs).norm() / seen.norm()
            worst = max(worst, float(error)) if bool(error.isfinite()) else float("inf")
    return worst


def _whole(loaded: LoadedModel, layer: int, row: Row, delta: torch.Tensor) -> torch.Tensor:
    """The model's own logits [n_tokens, n_vocab] from the first subject on, with delta added to the values."""
    with _added(loaded.arch.down_projection(layer), row.subjects, delta):
        logits = loaded.model(input_ids=torch.tensor([row.ids], device=loaded.device), use_cache=False).logits
    found: torch.Tensor = logits[0, row.subjects[0] : row.n_inputs].float()
    return found


@contextmanager
def _added(module: torch.nn.Module, positions: tuple[int, ...], delta: torch.Tensor) -> Iterator[None]:
    def add(_module: object, _args: object, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[0, list(positions)] += delta.to(output)
        return output

    handle = module.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
