"""What an edit did inside the model, layer by layer: the numbers behind the page's plots. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from steam_engine.anchors import reference_row
from steam_engine.errors import EditError
from steam_engine.hooks import captured, first_tensor
from steam_engine.loading import LoadedModel
from steam_engine.packing import groups, pack
from steam_engine.prompts import chat_text
from steam_engine.tokens import Row, encode, sentence
from steam_engine.types import FactEdit
from steam_engine.verify import said_in

NEIGHBOURS_SHOWN = 8
PointKind = Literal["before", "after", "anchor", "neighbour"]


@dataclass(frozen=True)
class Streams:
    """Residual streams at the subject's last token, in the model as it was: [n_layers, d_model] each, fp32."""

    subject: torch.Tensor
    anchors: dict[str, torch.Tensor]  # by reference subject; only references that the model knew
    neighbours: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Point:
    """A residual stream in the plane."""

    name: str
    kind: PointKind
    x: float
    y: float


@dataclass(frozen=True)
class Insight:
    """How the subject's residual stream moved. Cosines are by layer; None where there is no anchor."""

    layers: tuple[int, ...]
    anchor_before: tuple[float, ...] | None  # cos(unedited, anchor)
    anchor_after: tuple[float, ...] | None  # cos(edited, anchor)
    old_after: tuple[float, ...]  # cos(edited, unedited): 1 below the edit, less where it took hold
    layer: int  # of the plane
    points: tuple[Point, ...]
    explained: float  # share of the variance that the plane shows


@torch.no_grad()
def read_streams(loaded: LoadedModel, edit: FactEdit, others: bool = True) -> Streams:
    """Reads the model as it is now, in chat prompts that ask for the fact.

    Args:
        loaded: the model.
        edit: whose subject, references and neighbours.
        others: read references and neighbours as well.
    """
    tokenizer = loaded.tokenizer
    references = edit.references if others else ()
    names = edit.neighbours[:NEIGHBOURS_SHOWN] if others else ()
    rows = [_row(loaded, edit, edit.subject, (edit.subject, *edit.aliases))]
    rows += [reference_row(tokenizer, ref) for ref in references]
    rows += [_row(loaded, edit, name, (name,)) for name in names]
    found = _read(loaded, rows)
    n = len(references)
    anchors = {ref.subject: stream for ref, (known, stream) in zip(references, found[1 : n + 1], strict=True) if known}
    neighbours = {name: stream for name, (_, stream) in zip(names, found[n + 1 :], strict=True)}
    return Streams(found[0][1], anchors, neighbours)


def _row(loaded: LoadedModel, edit: FactEdit, subject: str, names: Sequence[str]) -> Row:
    opening = sentence(edit.statements[0], subject)
    text = chat_text(loaded.tokenizer, sentence(edit.questions[0], subject), opening, edit.target)
    return encode(loaded.tokenizer, text, names, chat=True)


def _read(loaded: LoadedModel, rows: Sequence[Row]) -> list[tuple[bool, torch.Tensor]]:
    """For each row: whether its target is what the model says, and its stream [n_layers, d_model]."""
    arch = loaded.arch
    found = []
    for group in groups(rows):
        batch = pack(arch, [row.ids[: row.n_inputs] for row in group])
        with captured(outputs={str(i): layer for i, layer in enumerate(arch.layers)}) as seen:
            hidden = arch.base(**batch.inputs, use_cache=False)[0][0]
        for start, row in zip(batch.start, group, strict=True):
            at = start + row.subjects[-1]
            stream = torch.stack([first_tensor(seen[str(i)])[0, at].float().cpu() for i in range(arch.n_layers)])
            found.append((said_in(arch, loaded.tokenizer, row, hidden[start:]).matches, stream))
    return found


def compare_streams(before: Streams, after: Streams, layer: int) -> Insight:
    """Cosines by layer, and the plane that shows most of one layer's streams (principal components).

    Args:
        before: of the model without the edit, with its references and neighbours.
        after: of the model with it; only the subject's stream is used.
        layer: of the plane.

    Raises:
        EditError: there is no such layer.
    """
    n_layers = len(before.subject)
    if not 0 <= layer < n_layers:
        raise EditError(f"There is no layer {layer}: this model's layers are 0 to {n_layers - 1}.")
    anchor = torch.stack(list(before.anchors.values())).mean(0) if before.anchors else None
    named: list[tuple[str, PointKind, torch.Tensor]] = [
        ("before", "before", before.subject[layer]),
        ("after", "after", after.subject[layer]),
        *((name, "anchor", stream[layer]) for name, stream in before.anchors.items()),
        *((name, "neighbour", stream[layer]) for name, stream in before.neighbours.items()),
    ]
    places, explained = _plane(torch.stack([stream for _, _, stream in named]))
    return Insight(
        layers=tuple(range(n_layers)),
        anchor_before=None if anchor is None else _cosines(before.subject, anchor),
        anchor_after=None if anchor is None else _cosines(after.subject, anchor),
        old_after=_cosines(after.subject, before.subject),
        layer=layer,
        points=tuple(
            Point(name, kind, float(x), float(y)) for (name, kind, _), (x, y) in zip(named, places, strict=True)
        ),
        explained=explained,
    )


def _cosines(a: torch.Tensor, b: torch.Tensor) -> tuple[float, ...]:
    return tuple(F.cosine_similarity(a, b, dim=-1).tolist())


def _plane(streams: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Coordinates [n, 2] on the first two principal components, and the share of the variance that they carry."""
    centred = streams.double() - streams.double().mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    places = torch.zeros(len(streams), 2, dtype=centred.dtype)
    n = min(2, len(s))
    places[:, :n] = u[:, :n] * s[:n]
    total = float((s**2).sum())
    return places, float((s[:n] ** 2).sum()) / total if total else 1.0
