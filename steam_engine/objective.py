"""The loss of a delta: L_NLL + L_KL + lambda L_LA (STEAM, eq. 5-7), with the answer sentence and composed
questions as further likelihoods and ROME's decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from steam_engine.anchors import Anchors
from steam_engine.settings import EditSettings
from steam_engine.suffix import SuffixModel


@dataclass(frozen=True)
class LossTerms:
    """Scalars of one step; `total` carries the graph."""

    total: torch.Tensor
    target: float  # mean NLL of the object's tokens, nats
    answer: float  # mean NLL of the answer sentences around it
    essence: float  # KL divergence on "{subject} is a"
    alignment: float  # mean over layers of 1 - cos(h, anchor); 0 without anchors
    hop: float  # mean NLL of composed answers
    all_best: bool  # every token of the object is the most probable one


class Objective:
    """Loss terms of a delta on the rows of a SuffixModel.

    `roles` names each row: "edit" (its target is the new object), "hop" (composed) or "essence".
    """

    def __init__(
        self, model: SuffixModel, roles: Sequence[str], anchors: Anchors | None, settings: EditSettings
    ) -> None:
        self.model, self.settings, self.anchors = model, settings, anchors
        rows = model.rows
        device = model.base_hidden.device

        edits = [i for i, role in enumerate(roles) if role == "edit"]
        hops = [i for i, role in enumerate(roles) if role == "hop"]
        essence = list(roles).index("essence")
        parts = {
            "target": [(i, p) for i in edits for p in rows[i].target],
            "answer": [(i, p) for i in edits for p in rows[i].answer],
            "hop": [(i, p) for i in hops for p in rows[i].target],
        }
        places = [place for part in parts.values() for place in part]
        self._sizes = [len(part) for part in parts.values()]
        # Logits are made once a step, for all places together: the head is a fifth of a small model's weights.
        essence_at = model.flat(essence, len(rows[essence].ids) - 1)
        self._at = torch.tensor([*(model.flat(r, p - 1) for r, p in places), essence_at], device=device)
        self._tokens = torch.tensor([rows[r].ids[p] for r, p in places], device=device)
        with torch.no_grad():
            base = model.base_hidden[essence_at]
            self._essence = F.log_softmax(model.arch.logits(base), -1)  # [n_vocab]
        self._value_norm = model.values.float().norm(dim=-1).mean()
        self._subjects = torch.tensor([model.flat(i, rows[i].subjects[-1]) for i in edits], device=device)

    def _misalignment(self, residuals: dict[int, torch.Tensor]) -> torch.Tensor:
        assert self.anchors is not None
        per_layer = [
            1 - F.cosine_similarity(residuals[layer][self._subjects].float(), anchor, dim=-1).mean()
            for layer, anchor in self.anchors.vectors.items()
        ]
        return torch.stack(per_layer).mean()

    def __call__(self, delta: torch.Tensor) -> LossTerms:
        """The loss of `delta` [d_model] (fp32)."""
        s = self.settings
        layers = tuple(self.anchors.vectors) if self.anchors else ()
        out = self.model(delta, layers)
        logits = self.model.arch.logits(out.hidden[self._at])  # [n_places + 1, n_vocab]
        nll = F.cross_entropy(logits[:-1], self._tokens, reduction="none")
        parts = torch.split(nll, self._sizes)
        target, answer, hop = (part.mean() if len(part) else nll.new_zeros(()) for part in parts)
        n_target = self._sizes[0]
        all_best = bool((logits[:n_target].argmax(-1) == self._tokens[:n_target]).all())
        essence = F.kl_div(self._essence, F.log_softmax(logits[-1], -1), log_target=True, reduction="sum")
        total = target + s.answer_weight * answer + s.essence_weight * essence + s.hop_weight * hop
        total = total + s.decay_weight * delta.norm() / self._value_norm**2
        alignment = 0.0
        if self.anchors:
            misalignment = self._misalignment(out.residuals)
            alignment = float(misalignment.detach())
            if s.alignment_weight:
                total = total + s.alignment_weight * misalignment
        return LossTerms(
            total, float(target.detach()), float(answer.detach()), float(essence.detach()), alignment,
            float(hop.detach()), all_best,
        )  # fmt: skip
