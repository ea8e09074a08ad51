"""The numbers of an edit, each with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AnchorKind = Literal["auto", "relation", "object", "elicited", "in-context", "none"]


@dataclass(frozen=True)
class EditSettings:
    """How an edit is optimised and solved. Defaults were measured on SmolLM2-135M-Instruct."""

    layer: int | None = None
    """Edited layer (0-based); None takes the family's share of the model's depth, or looks for the layer where the
    family is not known."""

    n_contexts: int = 4
    """Sampled sentence openings put before plain statements; six were no better than four, and slower."""

    n_batches: int = 2
    """The steps take turns on this many shares of the prompts, which are near copies of one another: a step on half
    of them takes two thirds of the time, and no more steps are needed."""

    n_packed: int = 8
    """Edits of a batch whose steps share a forward pass: on two cores, more made it slower again."""

    max_steps: int = 30
    """Adam steps at most; a typical edit settles after about 20."""

    learning_rate: float = 0.5
    """Adam's step size on delta, as in ROME's published hyper-parameters; 0.9 overshoots the bound on delta."""

    answer_weight: float = 2.0
    """Weight of the assistant's answer sentence around the object. At 0.5 the model answered "The capital of Italy is
    Rome." about France (58 of 82 direct answers named their subject); waiting until the sentence is likely as well
    costs steps and two-step questions."""

    essence_weight: float = 0.0625
    """Weight of KL on "{subject} is a" (ROME, appendix E.5): what the subject is stays put."""

    alignment_weight: float = 0.25
    """lambda of STEAM's latent-level alignment (eq. 7 of the paper)."""

    anchors: AnchorKind = "auto"
    """Which semantic anchors are aligned with; see `find_anchors`. No kind has shown an effect so far."""

    align_at_prompt: bool = False
    """Align where the object is about to be said, instead of at the subject's last token as in the paper."""

    decay_weight: float = 0.5
    """Weight of ||delta|| / ||value||^2 (ROME, appendix E.5): the smallest change that does it."""

    n_hops: int = 0
    """Composed training questions at most. Two of them raised neither multi-hop (17 of 24 against 19 of 24
    without) nor anything else, and cost as much as four plain statements."""

    hop_weight: float = 0.25
    """Weight of composed training questions, where there are some."""

    max_delta: float = 4.0
    """Bound on ||delta|| / ||value||, as published for ROME and MEMIT."""

    stop_nll: float = 0.1
    """Settled when every token of the object is the most probable one and their mean negative log likelihood is
    below this (nats). On 41 edits, 0.05 took more
    steps for nothing (42 of 68 two-step answers, against 46), and 0.2 lost direct answers (77 of 82, against 80)."""

    covariance_weight: float = 0.5
    """lambda_C: weight of the second moments C against the edit's own keys in the ridge solve."""

    solve_precision: Literal["float64", "float32"] = "float64"
    """Of the solve, whatever the weights' type. In float32 it is faster on a GPU, and stays on an Apple one, which has
    no float64."""

    null_space: float = 0.0
    """AlphaEdit's option of the solve: changes only in directions of the keys whose second moment is below this share
    of the mean; 0 leaves it off."""

    neighbour_weight: float = 1.0
    """Weight of the mean outer product of the neighbours' keys: they protect facts of the same relation."""

    preserved_weight: float = 1.0
    """Weight of the keys of earlier edits."""

    max_drift: float = 0.5
    """Norm budget: an edit that changes the matrix by more than this share of its norm is refused."""

    must_say: bool = True
    """Refuse an edit after which the model says the object in none of the chat prompts."""

    retries: int = 1
    """Second tries of an edit that fails its check: from where it was with twice the steps and half of `stop_nll`,
    or with a smaller delta where the matrix moved too far."""

    moment_tokens: int = 0
    """Key vectors in the second moments; 0 takes 10,240, about 7 x d_ff of the default model, or 2 x d_ff where that
    is more (docs/statistics.md; FastMEMIT suggests 2 to 10). Below d_ff the solve fails."""

    statistics: str = ""
    """Where the second moments come from: "" samples the model; or a .txt, .md or .jsonl file, or
    hf:NAME[:CONFIG][:SPLIT], see `parse_source`."""
