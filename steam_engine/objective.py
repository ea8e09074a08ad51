"""The loss of deltas: L_NLL + L_KL + lambda L_LA (STEAM, eq. 5-7), with the answer sentence and composed
questions as further likelihoods and ROME's decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from steam_engine.anchors import Anchors
from steam_engine.prompts import Role
from steam_engine.settings import EditSettings
from steam_engine.suffix import SuffixModel
from steam_engine.tokens import Row


@dataclass(frozen=True)
class LossTerms:
    """One edit's scalars in one step."""

    total: float
    target: float  # mean NLL of the object's tokens, nats
    answer: float  # mean NLL of the answer sentences around it
    essence: float  # KL divergence on "{subject} is a"
    alignment: float  # mean over layers of 1 - cos(h, anchor); 0 without anchors
    hop: float  # mean NLL of composed answers
    all_best: bool  # every token of the object is the most probable one


@dataclass(frozen=True)
class Losses:
    """One step of all edits."""

    total: torch.Tensor  # scalar with the graph: the sum over the edits, whose deltas do not meet
    edits: tuple[LossTerms, ...]


class Objective:
    """Loss terms of the deltas of some edits on the rows of a SuffixModel.

    Args:
        model: rows of all edits.
        roles: what each row is for; every edit has exactly one "essence".
        anchors: of each edit; None for an edit without.
        settings: weights of the terms.
    """

    def __init__(
        self, model: SuffixModel, roles: Sequence[Role], anchors: Sequence[Anchors | None], settings: EditSettings
    ) -> None:
        self.model, self.settings, self._anchors = model, settings, anchors
        rows, device, n_edits = model.rows, model.base_hidden.device, len(anchors)
        edits = [i for i, role in enumerate(roles) if role == "edit"]
        hops = [i for i, role in enumerate(roles) if role == "hop"]
        essence = [i for i, role in enumerate(roles) if role == "essence"]
        kinds = (
            [(i, p) for i in edits for p in rows[i].target],
            [(i, p) for i in edits for p in rows[i].answer],
            [(i, p) for i in hops for p in rows[i].target],
        )
        places = [place for kind in kinds for place in kind]
        # Logits are made once a step, for all places together: the head is a fifth of a small model's weights.
        essence_at = [model.flat(i, len(rows[i].ids) - 1) for i in essence]
        self._at = torch.tensor([*(model.flat(r, p - 1) for r, p in places), *essence_at], device=device)
        self._tokens = torch.tensor([rows[r].ids[p] for r, p in places], device=device)
        # Averages of the places of a kind, for every edit: [n_kinds, n_edits, n_places].
        self._means = torch.zeros(len(kinds), n_edits, len(places), device=device)
        at = 0
        for k, kind in enumerate(kinds):
            for r, _ in kind:
                self._means[k, model.owners[r], at] = 1
                at += 1
        self._targets = [self._means[0, i].nonzero()[:, 0] for i in range(n_edits)]  # places of an edit's object
        self._means /= self._means.sum(-1, keepdim=True).clamp(min=1)
        with torch.no_grad():
            logits = model.arch.logits(model.base_hidden[essence_at])
            self._essence = F.log_softmax(logits, -1)  # [n_edits, n_vocab], edit by edit as the rows are
        self._value_norms = torch.stack([values.float().norm(dim=-1).mean() for values in model.values])

        def place(row: Row) -> int:
            return row.target[0] - 1 if settings.align_at_prompt else row.subjects[-1]

        self._aligned = [
            torch.tensor([model.flat(i, place(rows[i])) for i in edits if model.owners[i] == n], device=device)
            for n in range(n_edits)
        ]
        self._layers = tuple(sorted({layer for anchor in anchors if anchor for layer in anchor.vectors}))

    def _misalignment(self, residuals: dict[int, torch.Tensor]) -> torch.Tensor:
        """Mean over layers of 1 - cos(h, anchor), [n_edits]."""
        per_edit = []
        for anchors, at in zip(self._anchors, self._aligned, strict=True):
            vectors = anchors.vectors if anchors else {}
            per_layer = [
                1 - F.cosine_similarity(residuals[layer][at].float(), anchor.to(at.device), dim=-1).mean()
                for layer, anchor in vectors.items()
            ]
            per_edit.append(torch.stack(per_layer).mean() if per_layer else self._value_norms.new_zeros(()))
        return torch.stack(per_edit)

    def __call__(self, deltas: torch.Tensor) -> Losses:
        """The losses of `deltas` [n_edits, d_model] (fp32)."""
        s = self.settings
        out = self.model(deltas, self._layers)
        logits = self.model.arch.logits(out.hidden[self._at])  # [n_places + n_edits, n_vocab]
        n_places = len(self._tokens)
        nll = F.cross_entropy(logits[:n_places], self._tokens, reduction="none")
        target, answer, hop = self._means @ nll.float()  # [n_edits] each
        best = logits[:n_places].argmax(-1) == self._tokens
        after = F.log_softmax(logits[n_places:], -1)
        essence = F.kl_div(self._essence, after, log_target=True, reduction="none").sum(-1)
        total = target + s.answer_weight * answer + s.essence_weight * essence + s.hop_weight * hop
        total = total + s.decay_weight * deltas.norm(dim=-1) / self._value_norms**2
        misalignment = self._misalignment(out.residuals)
        if s.alignment_weight:
            total = total + s.alignment_weight * misalignment
        numbers = torch.stack([total, target, answer, essence, misalignment, hop]).detach().T
        edits = tuple(
            _terms(row.tolist(), bool(best[at].all())) for row, at in zip(numbers, self._targets, strict=True)
        )
        return Losses(total.sum(), edits)


def _terms(row: list[float], all_best: bool) -> LossTerms:
    total, target, answer, essence, alignment, hop = row
    return LossTerms(total, target, answer, essence, alignment, hop, all_best)
