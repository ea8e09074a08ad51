"""The published loop of ROME and MEMIT: a vector is learnt by whole forward passes, with logits at every token.

Source: ROME (arXiv 2202.05262), section 3.1 and appendix E.5, and the authors' `compute_v`; MEMIT (arXiv 2210.07229),
section 4.1, and the authors' `compute_z`. Prompts are packed instead of padded, which only saves the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from steam_engine.errors import EditCancelledError, EditError
from steam_engine.hooks import first_tensor
from steam_engine.loading import LoadedModel
from steam_engine.packing import pack
from steam_engine.tokens import MarkedText, Row, encode, sentence
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback

STOP_LOSS = 0.05  # as in the authors' code


@dataclass(frozen=True)
class LoopSettings:
    """Numbers of the loop."""

    steps: int = 25
    learning_rate: float = 0.5
    kl_weight: float = 0.0625
    decay_weight: float = 0.5
    clamp: float = 4.0  # bound on ||delta|| / ||initial value||


@dataclass(frozen=True)
class Found:
    """What the loop found."""

    initial: torch.Tensor  # [d_model], fp32: the module's output at the subject in the bare statement
    delta: torch.Tensor  # [d_model], fp32
    steps: int


def statement_rows(loaded: LoadedModel, edit: FactEdit, contexts: Sequence[str]) -> list[Row]:
    """The statement with its object, bare and then after every context; the last mention of the subject counts."""
    rows = []
    for context in ("", *contexts):
        head = f"{context} {sentence(edit.statements[0], edit.subject)}".strip()
        text = f"{head} {edit.target}"
        row = encode(loaded.tokenizer, MarkedText(text, (len(head) + 1, len(text))), (edit.subject,), chat=False)
        rows.append(Row(row.ids, row.subjects[-1:], row.target))
    return rows


def learn_vector(
    loaded: LoadedModel,
    edit: FactEdit,
    contexts: Sequence[str],
    module: nn.Module,
    settings: LoopSettings,
    progress: ProgressCallback,
    cancel: CancelToken,
) -> Found:
    """The vector that, added to the module's output at the subject's last token, makes the model say the object.

    Args:
        loaded: the model, whose weights stay as they are.
        edit: only its first statement is used, as published.
        contexts: sentence openings of the model's own.
        module: a layer (MEMIT) or a down projection (ROME).
        settings: the loop's numbers.
        progress, cancel: told after, and asked before every step.

    Raises:
        EditCancelledError: `cancel` was set.
        EditError: the loss is not finite.
    """
    arch = loaded.arch
    rows = statement_rows(loaded, edit, contexts)
    names = (edit.subject,)
    essence = encode(loaded.tokenizer, MarkedText(sentence("{} is a", edit.subject)), names, chat=False)
    rows.append(Row(essence.ids, essence.subjects[-1:]))
    batch = pack(arch, [row.ids[: row.n_inputs] for row in rows])
    at = [start + row.subjects[0] for start, row in zip(batch.start, rows, strict=True)]
    places = [(i, p) for i, row in enumerate(rows) for p in row.target]
    logit_at = [batch.start[i] + p - 1 for i, p in places]
    tokens = torch.tensor([rows[i].ids[p] for i, p in places], device=arch.device)
    share = torch.tensor([1 / len(rows[i].target) / (len(rows) - 1) for i, _ in places], device=arch.device)
    essence_at = batch.start[-1] + len(rows[-1].ids) - 1
    delta = torch.zeros(arch.d_model, device=arch.device, requires_grad=True)
    where = torch.tensor(at, device=arch.device)
    initial: list[torch.Tensor] = []

    def add(_module: nn.Module, _args: Any, output: Any) -> Any:
        hidden = first_tensor(output)
        if not initial:
            initial.append(hidden[0, at[0]].detach().float().clone())
        hidden = hidden.index_add(1, where, delta.to(hidden.dtype).expand(1, len(at), -1))
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    adam = torch.optim.Adam([delta], lr=settings.learning_rate)
    before: torch.Tensor | None = None
    steps = 0
    handle = module.register_forward_hook(add)
    try:
        for step in range(settings.steps):
            if cancel.is_set():
                raise EditCancelledError("The edit was stopped; nothing has changed.")
            adam.zero_grad()
            logits = arch.logits(arch.base(**batch.inputs, use_cache=False)[0][0])  # [n_tokens, n_vocab]
            kept = F.log_softmax(logits[essence_at], -1)
            before = kept.detach() if before is None else before
            nll = F.cross_entropy(logits[logit_at], tokens, reduction="none") @ share
            kl = F.kl_div(before, kept, log_target=True, reduction="sum")
            decay = delta.norm() / initial[0].norm() ** 2
            loss = nll + settings.kl_weight * kl + settings.decay_weight * decay
            if not torch.isfinite(loss):
                raise EditError("The optimisation became unstable (loss is not finite); nothing has changed.")
            steps = step + 1
            progress(Progress("Finding the new value", steps, settings.steps, f"loss {float(loss.detach()):.2f}"))
            if loss < STOP_LOSS or steps == settings.steps:
                break
            loss.backward()
            adam.step()
            bound = settings.clamp * initial[0].norm()
            with torch.no_grad():
                if delta.norm() > bound:
                    delta.mul_(bound / delta.norm())
    finally:
        handle.remove()
    return Found(initial[0], delta.detach(), steps)
