"""Constrained fine-tuning (FT+L in ROME, arXiv 2202.05262, appendix E.1, after Zhu et al. 2020, arXiv 2012.00363).

One down projection is trained on the statement for 25 steps of Adam at 5e-4; after every step no entry may be
further than 5e-4 from where it was. The layer is that of this project's table, the same for all methods.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from steam_engine.errors import EditCancelledError, EditError
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Outcome
from steam_engine.methods.changes import Changes, changing
from steam_engine.methods.full_forward import statement_rows
from steam_engine.packing import pack
from steam_engine.tokens import Row
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback

STEPS = 25
LEARNING_RATE = 5e-4
NORM_CONSTRAINT = 5e-4  # L-infinity
STOP_LOSS = 0.01  # as in the authors' code


@dataclass
class FineTuningSession:
    """Fine-tuning of one matrix of one model."""

    loaded: LoadedModel
    layer: int
    changes: Changes

    def apply(self, edits: Sequence[FactEdit], progress: ProgressCallback, cancel: CancelToken) -> tuple[Outcome, ...]:
        """All statements in one training; see `Session.apply`."""
        started = time.perf_counter()
        rows: dict[int, Row] = {}
        errors: dict[int, str] = {}
        for i, edit in enumerate(edits):
            try:
                rows[i] = statement_rows(self.loaded, edit, ())[0]
            except EditError as error:
                errors[i] = str(error)
        steps = self._train(list(rows.values()), progress, cancel) if rows else 0
        seconds = (time.perf_counter() - started) / max(1, len(edits))
        return tuple(Outcome(edit, errors.get(i), seconds, 0 if i in errors else steps) for i, edit in enumerate(edits))

    def _train(self, rows: Sequence[Row], progress: ProgressCallback, cancel: CancelToken) -> int:
        arch = self.loaded.arch
        batch = pack(arch, [row.ids[: row.n_inputs] for row in rows])
        places = [(i, p) for i, row in enumerate(rows) for p in row.target]
        at = [batch.start[i] + p - 1 for i, p in places]
        tokens = torch.tensor([rows[i].ids[p] for i, p in places], device=arch.device)
        weight = arch.down_projection(self.layer).weight
        assert isinstance(weight, torch.nn.Parameter)
        before = weight.detach().clone()
        saved = self.changes.saved()
        steps = 0
        weight.requires_grad_(True)
        try:
            adam = torch.optim.Adam([weight], lr=LEARNING_RATE)
            for step in range(STEPS):
                if cancel.is_set():
                    raise EditCancelledError("The edit was stopped; nothing has changed.")
                adam.zero_grad()
                logits = arch.logits(arch.base(**batch.inputs, use_cache=False)[0][0, at])
                loss = F.cross_entropy(logits, tokens)
                steps = step + 1
                progress(Progress("Fine-tuning", steps, STEPS, f"loss {float(loss.detach()):.2f}"))
                if loss < STOP_LOSS:
                    break
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
                with torch.no_grad():
                    weight.copy_(
                        torch.minimum(torch.maximum(weight, before - NORM_CONSTRAINT), before + NORM_CONSTRAINT)
                    )
            change = weight.detach().float() - before.float()
        finally:
            weight.requires_grad_(False)
            weight.grad = None
            self.changes.restore(saved)
        self.changes.add(self.layer, change.T if arch.transposed else change)
        return steps

    def prompt(self, question: str) -> str:
        """The question itself."""
        return question


@dataclass
class FineTuning:
    """Constrained fine-tuning as a `Method`."""

    loaded: LoadedModel
    layer: int | None = None
    name: str = "ft"

    @contextmanager
    def session(self) -> Iterator[FineTuningSession]:
        """See `Method.session`."""
        layer = self.loaded.arch.default_layer() if self.layer is None else self.layer
        with changing(self.loaded.arch) as changes:
            changes.base(layer)  # kept before anything is trained
            yield FineTuningSession(self.loaded, layer, changes)
