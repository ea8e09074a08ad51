"""Semantic anchors: where the model itself puts the new object in its residual stream (STEAM, section 4.1).

References are facts that already have the object; the anchor of a layer is the mean residual stream at the
references' last subject tokens. Where the model knows no reference, it is told the new fact in its prompt and
its own residual stream at the subject is the anchor (the in-context anchor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steam_engine.architecture import Architecture
from steam_engine.elicit import elicited_references
from steam_engine.hooks import captured, first_tensor
from steam_engine.packing import groups, pack
from steam_engine.prompts import chat_text, plain_text
from steam_engine.settings import AnchorKind
from steam_engine.tokens import Row, encode, sentence
from steam_engine.types import FactEdit, Reference
from steam_engine.verify import Said, said_in


@dataclass(frozen=True)
class Anchors:
    """One vector a layer, and where it comes from."""

    kind: str  # "reference", "elicited" or "in-context"
    vectors: dict[int, torch.Tensor]  # layer -> [d_model], fp32
    subjects: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]  # (subject, reason)


def alignment_layers(n_layers: int, layer: int) -> tuple[int, ...]:
    """Every second layer of the lower half of those above the edited one: where attributes are enriched,
    before the last layers turn them into words."""
    return tuple(range(layer + 1, layer + 1 + max(1, (n_layers - layer) // 2), 2))


@torch.no_grad()
def _read(
    arch: Architecture, tokenizer: Any, rows: Sequence[Row], layers: Sequence[int], at_prompt: bool
) -> list[tuple[Said, dict[int, torch.Tensor]]]:
    """For each row, what the model says at its target and its residual stream [d_model] per layer, at the last subject
    token or (`at_prompt`) where the target is about to be said."""
    found = []
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        with captured(outputs={str(i): arch.layers[i] for i in layers}) as seen:
            hidden = arch.base(**batch.inputs, use_cache=False)[0][0]
        for start, row in zip(batch.start, group, strict=True):
            at = start + (row.target[0] - 1 if at_prompt else row.subjects[-1])
            residuals = {int(k): first_tensor(v)[0, at].float() for k, v in seen.items()}
            found.append((said_in(arch, tokenizer, row, hidden[start:]), residuals))
    return found


def _mean(residuals: Sequence[dict[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
    return {layer: torch.stack([r[layer] for r in residuals]).mean(0) for layer in residuals[0]}


def reference_row(tokenizer: Any, ref: Reference) -> Row:
    """The reference as a question and its answer in chat."""
    opening = sentence(ref.statement, ref.subject)
    text = chat_text(tokenizer, sentence(ref.question, ref.subject), opening, ref.object)
    return encode(tokenizer, text, (ref.subject,), chat=True)


def _told_rows(tokenizer: Any, edit: FactEdit, contexts: Sequence[str]) -> list[Row]:
    """The edit's own prompts after the new fact was told."""
    names = (edit.subject, *edit.aliases)
    opening = sentence(edit.statements[0], edit.subject)
    told = f"{opening} {edit.target}."
    rows = []
    for context in contexts[:2]:
        text = plain_text(f"{told} {context}", edit.statements[0], edit.subject, edit.target)
        rows.append(encode(tokenizer, text, names, chat=False))
    for question in edit.questions[:2]:
        asked = f"{told} {sentence(question, edit.subject)}"
        rows.append(encode(tokenizer, chat_text(tokenizer, asked, opening, edit.target), names, chat=True))
    return rows


def find_anchors(
    arch: Architecture,
    tokenizer: Any,
    edit: FactEdit,
    layers: Sequence[int],
    contexts: Sequence[str],
    kind: AnchorKind = "auto",
    at_prompt: bool = False,
) -> Anchors | None:
    """Anchors of an edit from the model as it is now, before the edit.

    A reference is known to the model when every token of its object is the most probable one in the assistant's
    answer; only such references count.

    Args:
        arch, tokenizer: the model.
        edit: brings references.
        layers: layers whose residual stream is wanted.
        contexts: sentence openings for the prompts.
        kind: "auto" takes the edit's references, and the in-context anchor where the model knows none of them;
            "relation" and "object" take only those of the same relation, or only the others; "elicited" asks the
            model for references; "in-context" and "none" take none.
        at_prompt: the residual stream where the object is about to be said, instead of the subject's last token.

    Returns:
        None where there is nothing to align with.
    """
    if kind == "none":
        return None
    dropped: list[tuple[str, str]] = []
    if kind != "in-context":
        known: dict[str, dict[int, torch.Tensor]] = {}
        references = _references(arch, tokenizer, edit, kind)
        rows = [reference_row(tokenizer, ref) for ref in references]
        for ref, (said, residuals) in zip(references, _read(arch, tokenizer, rows, layers, at_prompt), strict=True):
            if said.matches:
                known[ref.subject] = residuals
            else:
                dropped.append((ref.subject, f"the model says '{said.text}', not '{ref.object}'"))
        if known:
            name = "elicited" if kind == "elicited" else "reference"
            return Anchors(name, _mean(list(known.values())), tuple(known), tuple(dropped))
        if kind != "auto":
            return None
    told = _read(arch, tokenizer, _told_rows(tokenizer, edit, contexts), layers, at_prompt)
    return Anchors("in-context", _mean([residuals for _, residuals in told]), (edit.subject,), tuple(dropped))


def _references(arch: Architecture, tokenizer: Any, edit: FactEdit, kind: AnchorKind) -> tuple[Reference, ...]:
    if kind == "elicited":
        return elicited_references(arch.model, tokenizer, edit)
    same = {ref: ref.statement in edit.statements for ref in edit.references}
    return tuple(ref for ref in edit.references if kind == "auto" or same[ref] == (kind == "relation"))
