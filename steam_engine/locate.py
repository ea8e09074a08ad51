"""Where a model keeps a fact: causal tracing (ROME, arXiv 2202.05262, section 2), and the layer that it speaks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from steam_engine.errors import EditCancelledError
from steam_engine.hooks import first_tensor
from steam_engine.journal import write_atomically
from steam_engine.loading import LoadedModel
from steam_engine.tokens import MarkedText, encode, sentence
from steam_engine.types import CancelToken, Progress, ProgressCallback

NOISE = 3.0  # standard deviations of the embeddings, as published
N_SAMPLES = 6  # corrupted runs; ROME takes ten
Part = Literal["hidden", "mlp"]

FACTS: tuple[tuple[str, str], ...] = (
    ("The capital of {} is", "France"), ("The capital of {} is", "Japan"), ("The capital of {} is", "Germany"),
    ("The currency of {} is the", "Japan"), ("The official language of {} is", "Brazil"),
    ("{} is located in the city of", "The Eiffel Tower"), ("{} is located in the city of", "The Colosseum"),
    ("{} was written by", "Hamlet"), ("{} was founded by", "Microsoft"), ("The continent of {} is", "Egypt"),
)  # fmt: skip
"""Plain facts that most models have; whatever a model says after them is traced."""


@dataclass(frozen=True)
class CausalTrace:
    """How much of the answer comes back when one clean state is put into a corrupted run."""

    tokens: tuple[str, ...]
    subject: tuple[int, ...]  # positions of the subject's tokens
    said: str  # the first token of the model's answer
    clean: float  # its probability
    corrupted: float  # when the subject's embeddings are drowned in noise
    restored: torch.Tensor  # [n_layers, n_tokens], when the state of that layer and token is the clean one

    @property
    def last_subject_effect(self) -> torch.Tensor:
        """What each layer at the subject's last token brings back, [n_layers]."""
        return self.restored[:, self.subject[-1]] - self.corrupted


@torch.no_grad()
def causal_trace(
    loaded: LoadedModel,
    statement: str,
    subject: str,
    part: Part = "hidden",
    window: int = 1,
    seed: int = 0,
    last_only: bool = False,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> CausalTrace:
    """The heat map of one fact, for what the model itself says after the statement.

    Args:
        loaded: the model.
        statement: a template with one {} that ends before the object.
        subject: fills it.
        part: which state is put back: the residual stream after a layer, or its MLP's output.
        window: over how many layers around the layer (for "mlp", where one alone brings little back).
        seed: of the noise.
        last_only: put back the subject's last token alone; a row of the map for the price of a cell.
        progress, cancel: told after, and asked before every layer.

    Raises:
        EditCancelledError: `cancel` was set.
        EditError: the subject is not in the statement.
    """
    arch, tokenizer = loaded.arch, loaded.tokenizer
    text = sentence(statement, subject)
    row = encode(tokenizer, MarkedText(text), (subject,), chat=False)
    places = _subject_tokens(tokenizer, text, subject)
    n_layers = arch.n_layers
    put_back = [places[-1]] if last_only else list(range(len(row.ids)))
    # One clean row, and for every token that is put back, N_SAMPLES corrupted ones.
    ids = torch.tensor([row.ids], device=loaded.device).expand(1 + len(put_back) * N_SAMPLES, -1)
    owner = torch.tensor(put_back, device=loaded.device).repeat_interleave(N_SAMPLES)
    embedding = loaded.model.get_input_embeddings()
    scale = NOISE * float(embedding.weight.float().std())
    generator = torch.Generator().manual_seed(seed)
    noise = (torch.randn(N_SAMPLES, len(places), embedding.weight.shape[1], generator=generator) * scale).to(
        loaded.device, loaded.dtype
    )

    def corrupt(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        if len(output) > 1:
            output[1:, places] += noise.repeat(len(output) // N_SAMPLES, 1, 1)
        return output

    def probabilities(rows: torch.Tensor) -> torch.Tensor:
        hidden = arch.base(input_ids=rows, use_cache=False)[0][:, -1]
        return torch.softmax(arch.logits(hidden), -1)

    modules = [arch.layers[i] if part == "hidden" else arch.down_projection(i) for i in range(n_layers)]
    handle = embedding.register_forward_hook(corrupt)
    try:
        first = probabilities(ids[: 1 + N_SAMPLES])
        best = int(first[0].argmax())
        corrupted = float(first[1:, best].mean())
        restored = torch.full((n_layers, len(row.ids)), corrupted)
        for layer in range(n_layers):
            if cancel is not None and cancel.is_set():
                raise EditCancelledError("The search was stopped; nothing has changed.")
            around = range(max(0, layer - (window - 1) // 2), min(n_layers, layer + window // 2 + 1))
            with _put_back([modules[i] for i in around], owner):
                said = probabilities(ids)[1:, best].view(len(put_back), N_SAMPLES)
            restored[layer, put_back] = said.mean(1).float().cpu()
            if progress is not None:
                progress(Progress(f"Tracing '{text}'", layer + 1, n_layers, "layers"))
    finally:
        handle.remove()
    tokens = tuple(str(tokenizer.decode([token])) for token in row.ids)
    return CausalTrace(tokens, places, str(tokenizer.decode([best])), float(first[0, best]), corrupted, restored)


@contextmanager
def _put_back(modules: Sequence[torch.nn.Module], owner: torch.Tensor) -> Iterator[None]:
    """Inside, every corrupted row of these modules has the clean row's output at its own token."""
    rows = torch.arange(1, len(owner) + 1, device=owner.device)

    def put(_module: Any, _args: Any, output: Any) -> Any:
        hidden = first_tensor(output).clone()
        row, token = rows.to(hidden.device), owner.to(hidden.device)
        hidden[row, token] = hidden[0, token]
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    handles = [module.register_forward_hook(put) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _subject_tokens(tokenizer: Any, text: str, subject: str) -> tuple[int, ...]:
    start = text.lower().rindex(subject.lower())
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    return tuple(i for i, (a, b) in enumerate(offsets) if a < b and a < start + len(subject) and b > start)


def _layer_file(loaded: LoadedModel, cache_dir: Path) -> Path:
    return cache_dir / f"layer-{loaded.fingerprint[:16]}.json"


def found_layer(loaded: LoadedModel, cache_dir: Path) -> int | None:
    """What `find_layer` has found earlier; None where it has not looked, or the file is damaged."""
    try:
        known = int(json.loads(_layer_file(loaded, cache_dir).read_text())["layer"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if 0 <= known < loaded.arch.n_layers - 1 else None


def find_layer(
    loaded: LoadedModel,
    cache_dir: Path,
    progress: ProgressCallback,
    cancel: CancelToken,
    facts: Sequence[tuple[str, str]] = FACTS,
) -> int:
    """The layer whose MLPs bring most of a fact back at the subject's last token, over some plain facts; cached.

    For a model whose family has no measured layer. As in ROME (figure 2), MLPs of a window of layers are put back
    together: a fifth of the model. Windows with the first layer are left out: its MLP completes the embedding, so that
    putting it back undoes the noise instead of telling where the fact is. On the default model this finds layer 6 of
    30; layer 9 was best for edits.

    Raises:
        EditCancelledError: `cancel` was set.
    """
    known = found_layer(loaded, cache_dir)
    if known is not None:
        return known
    window = max(1, loaded.arch.n_layers // 5)
    effects = []
    for n, (statement, subject) in enumerate(facts):
        progress(Progress("Looking for the layer that keeps facts (once)", n, len(facts), "facts"))
        trace = causal_trace(loaded, statement, subject, "mlp", window, last_only=True, cancel=cancel)
        effects.append(trace.last_subject_effect)
    progress(Progress("Looking for the layer that keeps facts (once)", len(facts), len(facts), "facts"))
    first = (window - 1) // 2 + 1
    layer = first + int(torch.stack(effects).mean(0)[first : loaded.arch.n_layers - 1].argmax())
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(_layer_file(loaded, cache_dir), json.dumps({"layer": layer}).encode())
    except OSError:
        pass  # it is found again next time
    return layer
