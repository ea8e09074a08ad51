"""ROME (Meng et al. 2022, arXiv 2202.05262): one value at one layer, and an exact rank-one insertion.

As published: the statement alone after sampled contexts, 25 steps of the full model, W += (v* - W k) (C^-1 k)^T /
((C^-1 k)^T k) (eq. 2). Where this differs from the authors' code: the layer is that of this project's table (the same
for all methods), C comes from the text of `statistics`,
by default sampled from the model, and not from Wikipedia, and contexts end with a full stop.
Several edits are made one after another, since ROME has no joint solve.
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
from steam_engine.methods.full_forward import LoopSettings, learn_vector, statement_rows
from steam_engine.moments import statistics_of
from steam_engine.packing import groups, pack
from steam_engine.sampling import sample_contexts
from steam_engine.settings import EditSettings
from steam_engine.solve import RidgeSolver, solve_device
from steam_engine.tokens import Row
from steam_engine.types import CancelToken, FactEdit, ProgressCallback

N_CONTEXTS = 20  # as published: ten short and ten long ones; here all of about ten tokens


@torch.no_grad()
def keys_and_outputs(loaded: LoadedModel, layer: int, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [n_rows, d_ff] of a layer at each row's subject, and its down projection's outputs [n_rows, d_model]."""
    arch = loaded.arch
    down = arch.down_projection(layer)
    keys, outputs = [], []
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        at = [start + row.subjects[0] for start, row in zip(batch.start, group, strict=True)]
        with captured(inputs={"key": down}, outputs={"value": down}) as seen:
            arch.base(**batch.inputs, use_cache=False)
        keys.append(seen["key"][0, at].float())
        outputs.append(first_tensor(seen["value"])[0, at].float())
    return torch.cat(keys), torch.cat(outputs)


@dataclass
class RomeSession:
    """ROME on one model."""

    loaded: LoadedModel
    layer: int
    solver: RidgeSolver  # of C alone
    contexts: tuple[str, ...]
    settings: LoopSettings
    changes: Changes

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """One edit after another; see `Session.apply`."""
        started, saved = time.perf_counter(), self.changes.saved()
        results: list[tuple[str | None, int]] = []
        try:
            for edit in edits:
                try:
                    results.append((None, self._one(edit, progress, cancel)))
                except EditError as error:
                    results.append((str(error), 0))
        except BaseException:
            self.changes.restore(saved)
            raise
        seconds = (time.perf_counter() - started) / max(1, len(edits))
        return tuple(Outcome(e, error, seconds, steps) for e, (error, steps) in zip(edits, results, strict=True))

    def _one(self, edit: FactEdit, progress: ProgressCallback, cancel: CancelToken) -> int:
        arch = self.loaded.arch
        rows = statement_rows(self.loaded, edit, self.contexts)
        keys, outputs = keys_and_outputs(self.loaded, self.layer, rows)
        key = keys.mean(0)
        module = arch.down_projection(self.layer)
        found = learn_vector(self.loaded, edit, self.contexts, module, self.settings, progress, cancel)
        direction = self.solver.solve([], key[:, None].to(self.solver.device))[:, 0].float().to(key.device)
        direction = direction / direction.norm()
        left = (found.initial + found.delta - outputs[0]) / (keys[0] @ direction)  # rows[0] is the bare statement
        if not bool(torch.isfinite(left).all()):
            raise EditError("The new weights are not finite numbers; nothing has changed.")
        self.changes.add(self.layer, torch.outer(left, direction))
        return found.steps

    def prompt(self, question: str) -> str:
        """The question itself."""
        return question


@dataclass
class Rome:
    """ROME as a `Method`."""

    loaded: LoadedModel
    cache_dir: Path
    progress: ProgressCallback
    cancel: CancelToken
    layer: int | None = None
    settings: LoopSettings = field(default_factory=LoopSettings)
    moment_tokens: int = EditSettings.moment_tokens
    statistics: str = ""  # source of C, see `parse_source`
    name: str = "rome"

    @contextmanager
    def session(self) -> Iterator[RomeSession]:
        """See `Method.session`."""
        arch = self.loaded.arch
        layer = arch.default_layer() if self.layer is None else self.layer
        corpus = open_corpus(self.statistics)
        found = statistics_of(
            self.loaded, [layer], self.moment_tokens, self.cache_dir, self.progress, self.cancel, corpus
        )
        contexts = sample_contexts(self.loaded.model, self.loaded.tokenizer, N_CONTEXTS)
        solver = RidgeSolver(found[layer].moments.to(solve_device(self.loaded.device)), 1.0)
        with changing(arch) as changes:
            yield RomeSession(self.loaded, layer, solver, contexts, self.settings, changes)
