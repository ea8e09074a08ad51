"""Where each model family keeps its layers, down projections and norms, and which layer to edit.

One small entry a family, after TransformerLens' table; everything else in the engine asks this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from steam_engine.errors import (
    EncoderDecoderError,
    MixtureOfExpertsError,
    MultimodalModelError,
    QuantisedModelError,
    UnsupportedModelError,
)

MIN_LAYERS = 3


@dataclass(frozen=True)
class ArchitectureSpec:
    """Attribute paths of one family. Paths are relative to the causal language model or to one layer."""

    layers: str = "model.layers"
    down_projection: str = "mlp.down_proj"
    post_mlp_norm: str | None = None
    """Norm between the MLP's output and the residual stream (Gemma 2 and 3, OLMo 2), if there is one."""
    edit_depth: float = 0.3
    """Edited layer as a share of the depth: layer 9 of 30 was best on SmolLM2-135M."""


ARCHITECTURES: dict[str, ArchitectureSpec] = {
    "llama": ArchitectureSpec(),  # also SmolLM, SmolLM2
    "mistral": ArchitectureSpec(),
    "qwen2": ArchitectureSpec(),
    "qwen3": ArchitectureSpec(),
    "gemma": ArchitectureSpec(),
    "gemma2": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "gemma3_text": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "phi3": ArchitectureSpec(),
    "olmo": ArchitectureSpec(),
    "olmo2": ArchitectureSpec(post_mlp_norm="post_feedforward_layernorm"),
    "gpt2": ArchitectureSpec(layers="transformer.h", down_projection="mlp.c_proj"),
    "gptj": ArchitectureSpec(layers="transformer.h", down_projection="mlp.fc_out"),
    "gpt_neox": ArchitectureSpec(layers="gpt_neox.layers", down_projection="mlp.dense_4h_to_h"),
}


def _follow(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


class Architecture:
    """One model seen through its family's spec.

    Raises:
        UnsupportedModelError: no entry for the family, quantised or mixture-of-experts layers, fewer than three
            layers.
    """

    def __init__(self, model: Any) -> None:
        family = str(model.config.model_type)
        if getattr(model.config, "is_encoder_decoder", False):
            raise EncoderDecoderError(
                f"'{family}' is an encoder-decoder model; Amend edits decoder-only language models, "
                "for example Llama, Qwen, Mistral, Gemma or GPT-2."
            )
        if any(getattr(model.config, f"{kind}_config", None) is not None for kind in ("vision", "audio")):
            raise MultimodalModelError(
                f"'{family}' is a multimodal model; Amend edits models of text alone. Use the text-only checkpoint "
                "of the family, for example google/gemma-3-1b-it for Gemma 3."
            )
        if family not in ARCHITECTURES:
            known = ", ".join(sorted(ARCHITECTURES))
            raise UnsupportedModelError(f"Models of the family '{family}' cannot be edited yet. These can: {known}.")
        self.family = family
        self.spec = ARCHITECTURES[family]
        self.model = model
        self.base: Any = model.base_model  # the stack below the language-model head
        self.layers: nn.ModuleList = _follow(model, self.spec.layers)
        self.n_layers = len(self.layers)
        if self.n_layers < MIN_LAYERS:
            raise UnsupportedModelError(
                f"The model has {self.n_layers} layers; an edit needs at least {MIN_LAYERS}, since layers above the "
                "edited one have to carry the fact on. Use a deeper model."
            )
        projection = self.down_projection(0)
        weight = getattr(projection, "weight", None)
        if weight is None or not weight.is_floating_point():
            raise QuantisedModelError(
                "The model's MLP weights are quantised and cannot be edited in place. Load the original checkpoint in "
                "bfloat16, or a dequantised copy (model.dequantize(), then save_pretrained); a GGUF file is "
                "dequantised by itself."
            )
        # Conv1D (GPT-2) keeps its weight as [d_in, d_out], Linear as [d_out, d_in].
        self.transposed = type(projection).__name__ == "Conv1D"
        d_out, d_in = (weight.shape[1], weight.shape[0]) if self.transposed else weight.shape
        self.d_model, self.d_ff = int(d_out), int(d_in)

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Of the model's hidden states."""
        dtype: torch.dtype = next(self.model.parameters()).dtype
        return dtype

    def down_projection(self, layer: int) -> nn.Module:
        """The module whose input is the key [.., d_ff] and whose output is the value [.., d_model]."""
        try:
            module = _follow(self.layers[layer], self.spec.down_projection)
        except AttributeError:
            raise MixtureOfExpertsError(
                f"Layer {layer} of this {self.family} model has no '{self.spec.down_projection}': "
                "mixture-of-experts layers cannot be edited. Use a dense model of the family."
            ) from None
        assert isinstance(module, nn.Module)
        return module

    def default_layer(self) -> int:
        """The layer that is edited when the settings do not say."""
        return max(0, min(self.n_layers - 2, round(self.spec.edit_depth * self.n_layers)))

    def contribution(self, layer: int, value: torch.Tensor) -> torch.Tensor:
        """What a value [.., d_model] adds to the residual stream, through the post-MLP norm if there is one."""
        if self.spec.post_mlp_norm is None:
            return value
        norm = _follow(self.layers[layer], self.spec.post_mlp_norm)
        result = norm(value)
        assert isinstance(result, torch.Tensor)
        return result

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Vocabulary logits [.., n_vocab] in fp32 of final-normed residual streams [.., d_model]."""
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden).float()
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        if cap:  # Gemma 2 squashes its logits; an argmax does not mind, a likelihood does
            logits = torch.tanh(logits / cap) * cap
        return logits
