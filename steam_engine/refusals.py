"""What cannot be edited, told in a sentence that says what would work; most of it before any weight is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from steam_engine.errors import (
    EncoderDecoderError,
    MixtureOfExpertsError,
    MultimodalModelError,
    QuantisedModelError,
    UnsupportedModelError,
)
from steam_engine.families import supported

_PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS = ("experts", "block_sparse_moe")


def check_config(config: Any) -> None:
    """Refuses what a configuration already tells.

    Raises:
        EncoderDecoderError, MultimodalModelError, MixtureOfExpertsError, UnsupportedModelError: by its kind.
    """
    family = str(config.model_type)
    if getattr(config, "is_encoder_decoder", False):
        raise EncoderDecoderError(
            f"'{family}' is an encoder-decoder model; Amend edits decoder-only language models, "
            "for example Llama, Qwen, Mistral, Gemma or GPT-2."
        )
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if is_multimodal(config) and not causal:
        raise multimodal(family)
    if not causal:
        raise UnsupportedModelError(
            f"transformers has no language model of the family '{family}' that writes text. {supported()}"
        )
    text = config.get_text_config()
    if any(_count(text, name) > 1 for name in _EXPERT_COUNTS):
        raise experts(family)


def check_not_quantised(config: Any) -> None:
    """Refuses a checkpoint of packed numbers. (A model read from a GGUF file is not one: its numbers are plain.)

    Raises:
        QuantisedModelError: it is one.
    """
    found = getattr(config, "quantization_config", None)
    if found:
        known = found if isinstance(found, dict) else found.to_dict()
        raise _quantised(str(known.get("quant_method", "packed")))


def check_layers(family: str, layers: nn.ModuleList) -> None:
    """Refuses what only the layers tell.

    Raises:
        MixtureOfExpertsError, QuantisedModelError: by their kind.
    """
    for name, part in layers.named_modules():
        if name.rpartition(".")[2] in _EXPERTS:
            raise experts(family)
        weight = getattr(part, "weight", getattr(part, "qweight", None))
        if isinstance(weight, torch.Tensor) and (weight.dtype not in _PLAIN or _wrapped(weight)):
            raise _quantised(type(part).__name__)


def is_multimodal(config: Any) -> bool:
    """It has a tower for pictures or sound."""
    return any(getattr(config, f"{kind}_config", None) is not None for kind in ("vision", "audio"))


def multimodal(family: str) -> MultimodalModelError:
    """The refusal of a wrapper whose text stack cannot be had by itself."""
    return MultimodalModelError(
        f"'{family}' is a multimodal model; Amend edits models of text alone. Use the text-only checkpoint of the "
        "family: Qwen/Qwen2.5-1.5B-Instruct in place of a Qwen2.5-VL, for example."
    )


def experts(family: str) -> MixtureOfExpertsError:
    """The refusal of MLPs that are split into experts."""
    return MixtureOfExpertsError(
        f"This {family} model is a mixture of experts, whose layers have no single MLP to write a fact into. "
        "Use a dense model, for example Qwen/Qwen3-1.7B."
    )


def _quantised(what: str) -> QuantisedModelError:
    return QuantisedModelError(
        f"The model's weights are quantised ({what}) and cannot be edited in place. Give --model the original "
        "checkpoint with --dtype bfloat16, or a dequantised copy (in transformers: model.dequantize(), then "
        "save_pretrained); a GGUF file is dequantised by itself."
    )


def _count(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else 0


def _wrapped(weight: torch.Tensor) -> bool:
    """A tensor subclass (torchao's) that only looks like plain numbers."""
    plain = weight.data if isinstance(weight, nn.Parameter) else weight
    return type(plain) is not torch.Tensor
