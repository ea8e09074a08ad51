"""Will the model fit? Asked before it is loaded, so that a refusal takes the place of a process that is killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from steam_engine.errors import NotEnoughMemoryError

LOADING = 1.15  # of the weights: what transformers holds besides them while it fills them
SOLVE_MATRICES = 4  # of [d_ff, d_ff] in fp64: second moments, their ridge, its factor, and one more while solving
ACTIVATION_TOKENS = 512  # of a packed pass, forward and backward
GIB = 2**30


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a model needs."""

    n_parameters: int
    weights: int  # in the wanted dtype
    loading: int  # at most, until the weights are in place
    editing: int  # on top of the weights, while an edit runs

    @property
    def most(self) -> int:
        """The larger of what loading and editing need in all."""
        return max(self.loading, self.weights + self.editing)


def plan_memory(config: Any, dtype: torch.dtype) -> MemoryPlan:
    """Counts the parameters of a configuration without making them.

    An edit holds a second copy of one matrix, a few [d_ff, d_ff] matrices in fp64, and the activations of one packed
    pass through the layers above; all of it is small beside a large model, and not beside a small one.
    """
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    n = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    text = config.get_text_config()
    d_model, n_layers, n_vocab = int(text.hidden_size), int(text.num_hidden_layers), int(text.vocab_size)
    d_ff = int(getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * d_model)
    size = torch.empty((), dtype=dtype).element_size()
    matrices = SOLVE_MATRICES * 8 * d_ff**2 + (size + 8) * d_ff * d_model
    # A layer keeps about ten vectors of d_model and three of d_ff a token for the backward pass; logits are fp32.
    activations = ACTIVATION_TOKENS * (size * n_layers * (10 * d_model + 3 * d_ff) + 3 * 4 * n_vocab // 4)
    weights = n * size
    return MemoryPlan(n, weights, int(LOADING * weights), matrices + activations)


def free_memory(device: torch.device) -> int:
    """Bytes that can be had on a device; on mps, which shares it, the machine's."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available)


def check_memory(name: str, config: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Refuses a model that does not fit.

    Raises:
        NotEnoughMemoryError: with what is needed, what is there, and what would fit.
    """
    need, free = plan_memory(config, dtype), free_memory(device)
    if need.most <= free:
        return
    half = "" if dtype.itemsize <= 2 else " With --dtype bfloat16 it needs about half of that."
    raise NotEnoughMemoryError(
        f"{name} needs about {need.most / GIB:.1f} GiB as {str(dtype).removeprefix('torch.')} "
        f"({need.n_parameters / 1e9:.2f} billion parameters), and {free / GIB:.1f} GiB are free on {device}.{half} "
        "Close other programs, or use a smaller model."
    )


def read_config(path: str, gguf: str | None) -> Any:
    """The configuration of a checkpoint. Raises what transformers raises."""
    return AutoConfig.from_pretrained(path, **({"gguf_file": gguf} if gguf else {}))
