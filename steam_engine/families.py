"""Where each model family keeps its layers, down projections and norms, and which layer to edit.

One small entry a family, after TransformerLens' table; a family without one is recognised by its structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from steam_engine.errors import UnsupportedModelError


@dataclass(frozen=True)
class ArchitectureSpec:
    """Attribute paths of one family. Paths are relative to the causal language model or to one layer."""

    layers: str = "model.layers"
    down_projection: str = "mlp.down_proj"
    post_mlp_norm: str | None = None
    """Norm between the MLP's output and the residual stream (Gemma 2 and 3, OLMo 2), if there is one."""
    edit_depth: float | None = 0.3
    """Edited layer as a share of the depth: layer 9 of 30 was best on SmolLM2-135M. None: nobody has looked, so that
    the layer has to be found by tracing, and the engine has to test itself on the model."""


ARCHITECTURES: dict[str, ArchitectureSpec] = {
    "llama": ArchitectureSpec(),  # also SmolLM, SmolLM2
    "mistral": ArchitectureSpec(),
    "qwen2": ArchitectureSpec(),
    "qwen3": ArchitectureSpec(),
    "gemma": ArchitectureSpec(),
    "gemma2": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "gemma3": ArchitectureSpec(  # the text stack of the model that sees
        layers="model.language_model.layers", post_mlp_norm="post_feedforward_layernorm"
    ),
    "gemma3_text": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "phi3": ArchitectureSpec(),
    "olmo": ArchitectureSpec(),
    "olmo2": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "gpt2": ArchitectureSpec(layers="transformer.h", down_projection="mlp.c_proj"),
    "gptj": ArchitectureSpec(layers="transformer.h", down_projection="mlp.fc_out"),
    "gpt_neox": ArchitectureSpec(layers="gpt_neox.layers", down_projection="mlp.dense_4h_to_h"),
}

_MLPS = ("mlp", "feed_forward", "ffn")
_POST_MLP_NORMS = ("post_feedforward_layernorm", "post_mlp_layernorm")


def spec_of(model: Any) -> ArchitectureSpec:
    """The table's entry, or what the model's structure says.

    Raises:
        UnsupportedModelError: it has no list of decoder layers with an MLP each.
    """
    return ARCHITECTURES.get(str(model.config.model_type)) or _recognised(model)


def _recognised(model: Any) -> ArchitectureSpec:
    config = model.config.get_text_config()
    for name, layers in model.named_modules():
        if not isinstance(layers, nn.ModuleList) or len(layers) != getattr(config, "num_hidden_layers", 0):
            continue
        found = [_down_projection(layer, config.hidden_size) for layer in layers]
        path = found[0]
        if path is None or any(other != path for other in found):
            continue
        if len({layer.get_submodule(path).weight.shape for layer in layers}) > 1:
            continue
        norm = next((norm for norm in _POST_MLP_NORMS if hasattr(layers[0], norm)), None)
        return ArchitectureSpec(name, path, norm, edit_depth=None)
    raise UnsupportedModelError(
        f"Models of the family '{model.config.model_type}' cannot be edited: they are not a stack of alike layers with "
        f"an MLP each. {supported()}"
    )


def _down_projection(layer: nn.Module, d_model: int) -> str | None:
    """Path of the last linear map of the layer's MLP, if it leads to the residual stream."""
    for name in _MLPS:
        mlp = getattr(layer, name, None)
        if not isinstance(mlp, nn.Module):
            continue
        linear = [(path, part) for path, part in mlp.named_modules() if isinstance(part, nn.Linear | Conv1D)]
        to_stream = [path for path, part in linear if _d_out(part) == d_model]
        if len(linear) > 1 and to_stream:
            return f"{name}.{to_stream[-1]}"
    return None


def _d_out(part: nn.Linear | Conv1D) -> int:
    return int(part.out_features if isinstance(part, nn.Linear) else part.nf)


def supported() -> str:
    """A sentence for refusals."""
    return f"These families can: {', '.join(sorted(ARCHITECTURES))}."
