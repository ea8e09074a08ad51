"""MEMIT (Meng et al. 2023, arXiv 2210.07229): hidden states for many facts at once, spread over several layers.

As published: z_i = h_i + delta_i at the last of the edited layers (25 steps of the full model, clamp 0.75), then, from
the first layer to the last, R = (z - h) / (layers that are left) and W += R K^T (lambda C + K K^T)^-1 (eq. 14, 20)
with lambda = 15,000 at d_ff = 16,384. Where this differs from the authors' code: lambda grows with d_ff, since
k^T C^-1 k does (about d_ff for a typical key: on a small model the published number would leave an edit without
effect); the last layer is that of this project's table (the
same for all methods), with the four below it; C comes from the text of `statistics`,
by default sampled from the model, and not from Wikipedia.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from steam_engine.corpora.registry import open_corpus
from steam_engine.errors import EditError
from steam_engine.hooks import captured, first_tensor
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Outcome
from steam_engine.methods.changes import Changes, changing
from steam_engine.methods.full_forward import Found, LoopSettings, learn_vector, statement_rows
from steam_engine.methods.rome import N_CONTEXTS, keys_and_outputs
from steam_engine.moments import statistics_of
from steam_engine.packing import groups, pack
from steam_engine.sampling import sample_contexts
from steam_engine.settings import EditSettings
from steam_engine.solve import solve_device
from steam_engine.tokens import Row
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback

N_LAYERS = 5  # published for GPT-J and for Llama-sized models
COVARIANCE_WEIGHT = 15_000.0 / 16_384  # lambda / d_ff, of GPT-J
CLAMP = 0.75


@dataclass
class MemitSession:
    """MEMIT on one model."""

    loaded: LoadedModel
    layers: tuple[int, ...]
    moments: dict[int, torch.Tensor]  # layer -> C, [d_ff, d_ff]
    contexts: tuple[str, ...]
    settings: LoopSettings
    changes: Changes

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """All edits in one solve a layer; see `Session.apply`."""
        started, saved = time.perf_counter(), self.changes.saved()
        last = self.loaded.arch.layers[self.layers[-1]]
        found: dict[int, Found] = {}
        errors: dict[int, str] = {}
        try:
            for i, edit in enumerate(edits):
                try:
                    found[i] = learn_vector(self.loaded, edit, self.contexts, last, self.settings, progress, cancel)
                except EditError as error:
                    errors[i] = str(error)
            if found:
                self._spread([edits[i] for i in found], list(found.values()), progress)
        except BaseException:
            self.changes.restore(saved)
            raise
        seconds = (time.perf_counter() - started) / max(1, len(edits))
        steps = {i: one.steps for i, one in found.items()}
        return tuple(Outcome(edit, errors.get(i), seconds, steps.get(i, 0)) for i, edit in enumerate(edits))

    def _spread(self, edits: Sequence[FactEdit], found: Sequence[Found], progress: ProgressCallback) -> None:
        rows = [statement_rows(self.loaded, edit, self.contexts) for edit in edits]
        wanted = torch.stack([one.initial + one.delta for one in found])  # z, [n_edits, d_model]
        device = solve_device(self.loaded.device)
        for i, layer in enumerate(self.layers):
            progress(Progress("Solving for the weights", i, len(self.layers)))
            keys = torch.stack([keys_and_outputs(self.loaded, layer, own)[0].mean(0) for own in rows])
            now = hidden_states(self.loaded, self.layers[-1], [own[0] for own in rows])
            residual = ((wanted - now) / (len(self.layers) - i)).to(device, torch.float64)
            K = keys.to(device, torch.float64)  # [n_edits, d_ff]
            weight = COVARIANCE_WEIGHT * self.loaded.arch.d_ff
            A = weight * self.moments[layer].to(device, torch.float64) + K.T @ K
            change = (residual.T @ torch.linalg.solve(A, K.T).T).float()  # [d_model, d_ff]
            if not bool(torch.isfinite(change).all()):
                raise EditError("The new weights are not finite numbers; nothing has changed.")
            self.changes.add(layer, change)

    def prompt(self, question: str) -> str:
        """The question itself."""
        return question


@torch.no_grad()
def hidden_states(loaded: LoadedModel, layer: int, rows: Sequence[Row]) -> torch.Tensor:
    """Residual streams [n_rows, d_model] after a layer at each row's subject, fp32."""
    arch = loaded.arch
    found = []
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        at = [start + row.subjects[0] for start, row in zip(batch.start, group, strict=True)]
        with captured(outputs={"layer": arch.layers[layer]}) as seen:
            arch.base(**batch.inputs, use_cache=False)
        found.append(first_tensor(seen["layer"])[0, at].float())
    return torch.cat(found)


@dataclass
class Memit:
    """MEMIT as a `Method`."""

    loaded: LoadedModel
    cache_dir: Path
    progress: ProgressCallback
    cancel: CancelToken
    layers: tuple[int, ...] | None = None
    settings: LoopSettings = field(default_factory=lambda: LoopSettings(clamp=CLAMP))
    moment_tokens: int = EditSettings.moment_tokens
    statistics: str = ""  # source of C, see `parse_source`
    name: str = "memit"

    @contextmanager
    def session(self) -> Iterator[MemitSession]:
        """See `Method.session`."""
        last = self.loaded.arch.default_layer()
        layers = self.layers or tuple(range(max(0, last - N_LAYERS + 1), last + 1))
        corpus = open_corpus(self.statistics)
        statistics = statistics_of(
            self.loaded, layers, self.moment_tokens, self.cache_dir, self.progress, self.cancel, corpus
        )
        contexts = sample_contexts(self.loaded.model, self.loaded.tokenizer, N_CONTEXTS)
        moments = {layer: one.moments for layer, one in statistics.items()}
        with changing(self.loaded.arch) as changes:
            yield MemitSession(self.loaded, tuple(layers), moments, contexts, self.settings, changes)
