"""Semantic anchors: where the model itself puts the new object in its residual stream (STEAM, section 4.1).

References are facts that already have the object; the anchor of a layer is the mean residual stream at the
references' last subject tokens. Where the model knows no reference, it is told the new fact in its prompt and
its own residual stream at the subject is the anchor (the in-context anchor).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import captured, first_tensor, stopping_after
from steam_engine.prompts import chat_text, plain_text
from steam_engine.tokens import MarkedText, Row, encode, pad_id, pad_rows, sentence
from steam_engine.types import FactEdit, Reference
from steam_engine.verify import said_at_target


@dataclass(frozen=True)
class Anchors:
    """One vector a layer, and where it comes from."""

    kind: str  # "reference" or "in-context"
    vectors: dict[int, torch.Tensor]  # layer -> [d_model], fp32
    subjects: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]  # (subject, reason)


def alignment_layers(n_layers: int, layer: int) -> tuple[int, ...]:
    """Every second layer of the lower half of those above the edited one: where attributes are enriched,
    before the last layers turn them into words."""
    return tuple(range(layer + 1, layer + 1 + max(1, (n_layers - layer) // 2), 2))


@torch.no_grad()
def _residuals(
    arch: Architecture, tokenizer: Any, rows: Sequence[Row], layers: Sequence[int]
) -> dict[int, torch.Tensor]:
    """Mean residual stream [d_model] at each row's last subject token, per layer."""
    device = next(arch.model.parameters()).device
    batch = pad_rows(rows, pad_id(tokenizer)).to(device)
    above = max(layers) + 1  # layers from here on are not needed
    stop = stopping_after(arch.layers[above]) if above < arch.n_layers else nullcontext()
    with captured(outputs={str(i): arch.layers[i] for i in layers}) as seen, stop:
        arch.base(input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False)
    index = torch.arange(len(rows), device=device)
    column = torch.tensor(
        [start + row.subjects[-1] for start, row in zip(batch.start, rows, strict=True)], device=device
    )
    return {int(k): first_tensor(v)[index, column].float().mean(0) for k, v in seen.items()}


def known_references(
    arch: Architecture, tokenizer: Any, references: Sequence[Reference]
) -> tuple[tuple[Reference, ...], tuple[tuple[str, str], ...]]:
    """Splits references into those that the model answers by itself and (subject, reason) of the others.

    A reference is known when every token of its object is the most probable one in the assistant's answer.
    """
    rows = [
        encode(
            tokenizer,
            chat_text(
                tokenizer,
                sentence(ref.question, ref.subject),
                sentence(ref.statement, ref.subject),
                ref.object,
            ),
            (ref.subject,),
            chat=True,
        )
        for ref in references
    ]
    known: list[Reference] = []
    dropped: list[tuple[str, str]] = []
    for ref, said in zip(references, said_at_target(arch, tokenizer, rows), strict=True):
        if said.matches:
            known.append(ref)
        else:
            dropped.append((ref.subject, f"the model says '{said.text}', not '{ref.object}'"))
    return tuple(known), tuple(dropped)


def find_anchors(
    arch: Architecture, tokenizer: Any, edit: FactEdit, layers: Sequence[int], contexts: Sequence[str]
) -> Anchors:
    """Anchors of an edit from the model as it is now, before the edit.

    Args:
        arch, tokenizer: the model.
        edit: its `references` are tried first.
        layers: layers whose residual stream is wanted.
        contexts: sentence openings for the prompts.
    """
    known, dropped = known_references(arch, tokenizer, edit.references)
    rows: list[Row] = []
    if known:
        for ref in known:
            opening = sentence(ref.statement, ref.subject)
            for context in contexts[:2]:
                rows.append(encode(tokenizer, MarkedText(f"{context} {opening}"), (ref.subject,), chat=False))
            marked = chat_text(tokenizer, sentence(ref.question, ref.subject), opening, ref.object)
            rows.append(encode(tokenizer, marked, (ref.subject,), chat=True))
        kind, subjects = "reference", tuple(ref.subject for ref in known)
    else:
        names = (edit.subject, *edit.aliases)
        opening = sentence(edit.statements[0], edit.subject)
        told = f"{opening} {edit.target}."
        for context in contexts[:2]:
            text = plain_text(f"{told} {context}", edit.statements[0], edit.subject, edit.target)
            rows.append(encode(tokenizer, text, names, chat=False))
        for question in edit.questions[:2]:
            asked = f"{told} {sentence(question, edit.subject)}"
            rows.append(encode(tokenizer, chat_text(tokenizer, asked, opening, edit.target), names, chat=True))
        kind, subjects = "in-context", (edit.subject,)
    return Anchors(kind, _residuals(arch, tokenizer, rows, layers), subjects, dropped)
