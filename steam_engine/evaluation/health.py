"""What an edit did to the rest of the model: drift on held-out text, and the fluency of what it writes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from steam_engine.generating import generate
from steam_engine.loading import LoadedModel
from steam_engine.packing import pack
from steam_engine.tokens import sentence

HELD_OUT = (
    "The kettle began to sing while the rain went on outside, and she put two cups on the table without asking.",
    "Bread rises because yeast turns sugar into gas, which the dough holds in thousands of small bubbles.",
    "A good map leaves things out. What remains should be enough to find the way and no more than the eye can take in.",
    "In 1969 two people walked on the Moon and came back with twenty-one kilograms of rock and dust.",
    "The committee met on Tuesday, agreed that nothing could be decided yet, and chose a date for its next meeting.",
    "To sort a list, compare neighbours and swap those that stand in the wrong order until no swap is needed.",
    "Sea water is salty since rivers carry minerals to the oceans, where the water leaves and the salt stays.",
    "He had learned the piece by heart as a boy, and forty years later his hands still knew what came next.",
)
"""Plain prose of several kinds, written for this project; no edit is about any of it."""

FLUENCY_TOKENS = 60


@dataclass(frozen=True)
class Drift:
    """How far the model is from the unedited one on held-out text."""

    kl: float  # mean KL(unedited || edited) per token, nats
    perplexity_ratio: float  # edited / unedited


class Baseline:
    """The unedited model's predictions on the held-out text."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._rows = [list(loaded.tokenizer(text)["input_ids"]) for text in HELD_OUT]
        self._before, self._nll = self._predict()

    @torch.no_grad()
    def _predict(self) -> tuple[torch.Tensor, float]:
        """Log probabilities [n_tokens, n_vocab] after every token but a row's last, and the mean NLL of the next."""
        arch = self._loaded.arch
        batch = pack(arch, self._rows)
        at = [start + i for start, row in zip(batch.start, self._rows, strict=True) for i in range(len(row) - 1)]
        following = torch.tensor([t for row in self._rows for t in row[1:]], device=arch.device)
        logits = arch.logits(arch.base(**batch.inputs, use_cache=False)[0][0, at])
        return F.log_softmax(logits, -1), float(F.cross_entropy(logits, following))

    def drift(self) -> Drift:
        """Of the model as it is now."""
        now, nll = self._predict()
        kl = F.kl_div(now, self._before, log_target=True, reduction="none").sum(-1).mean()
        return Drift(float(kl), math.exp(min(nll - self._nll, 50.0)))


def fluency(loaded: LoadedModel, subject: str) -> float:
    """Weighted entropy (bits) of the two- and three-word frequencies of a text about the subject.

    Repetition gives low values. Source: "generation entropy" of ROME (arXiv 2202.05262, section 3.4), weights 2/3 and
    4/3, on one greedy text of 60 tokens.
    """
    row = list(loaded.tokenizer(sentence("{} is", subject))["input_ids"])
    (made,) = generate(loaded, [row], FLUENCY_TOKENS)
    words = str(loaded.tokenizer.decode(made, skip_special_tokens=True)).split()
    return (2 / 3 * _entropy(words, 2) + 4 / 3 * _entropy(words, 3)) / 2


def _entropy(words: list[str], n: int) -> float:
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    total = sum(counts.values())
    return -sum(c / total * math.log2(c / total) for c in counts.values()) if total else 0.0
