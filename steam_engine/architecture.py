"""One model seen by the engine: its layers, down projections and logits. The family's entry says where they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from steam_engine.errors import UnsupportedModelError
from steam_engine.families import spec_of
from steam_engine.placement import device_of, input_device, weight_of
from steam_engine.refusals import check_config, check_layers

MIN_LAYERS = 3
UNKNOWN_DEPTH = 0.3  # as the table's entries have, until somebody looks


def _follow(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


class Architecture:
    """One model seen through its family's spec.

    Raises:
        UnsupportedModelError: the family's structure is another one, quantised or mixture-of-experts layers, fewer
            than three layers.
    """

    def __init__(self, model: Any) -> None:
        check_config(model.config)
        self.family = family = str(model.config.model_type)
        for stack in model.modules():
            if isinstance(stack, nn.ModuleList):
                check_layers(family, stack)
        self.spec = spec_of(model)
        self.model = model
        try:
            self.layers: nn.ModuleList = _follow(model, self.spec.layers)
            self.down_projection(0)
        except AttributeError:
            raise UnsupportedModelError(
                f"This {family} model has no '{self.spec.layers}' with '{self.spec.down_projection}' in each: it was "
                "changed after transformers made it. Load the checkpoint as it is published."
            ) from None
        self.base: Any = _follow(model, self.spec.layers.rpartition(".")[0])  # the stack below the language-model head
        self.n_layers = len(self.layers)
        if self.n_layers < MIN_LAYERS:
            raise UnsupportedModelError(
                f"The model has {self.n_layers} layers; an edit needs at least {MIN_LAYERS}, since layers above the "
                "edited one have to carry the fact on. Use a deeper model."
            )
        projection = self.down_projection(0)
        weight = weight_of(projection)
        # Conv1D (GPT-2) keeps its weight as [d_in, d_out], Linear as [d_out, d_in].
        self.transposed = type(projection).__name__ == "Conv1D"
        d_out, d_in = (weight.shape[1], weight.shape[0]) if self.transposed else weight.shape
        self.d_model, self.d_ff = int(d_out), int(d_in)
        self._text: Any = model.config.get_text_config()

    @property
    def is_known(self) -> bool:
        """The family has an entry, so that somebody has tried it."""
        return self.spec.edit_depth is not None

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return input_device(self.model)

    def device_of(self, layer: int) -> torch.device:
        """Where a layer computes, and what comes out of it lies."""
        return device_of(self.down_projection(layer))

    @property
    def dtype(self) -> torch.dtype:
        """Of the model's hidden states."""
        dtype: torch.dtype = next(self.model.parameters()).dtype
        return dtype

    def down_projection(self, layer: int) -> nn.Module:
        """The module whose input is the key [.., d_ff] and whose output is the value [.., d_model]."""
        module = _follow(self.layers[layer], self.spec.down_projection)
        assert isinstance(module, nn.Module)
        return module

    def default_layer(self) -> int:
        """The layer that is edited when the settings do not say; a first guess where the family is not known."""
        depth = self.spec.edit_depth or UNKNOWN_DEPTH
        return max(0, min(self.n_layers - 2, round(depth * self.n_layers)))

    def contribution(self, layer: int, value: torch.Tensor) -> torch.Tensor:
        """What a value [.., d_model] adds to the residual stream: after the post-MLP norm and Granite's multiplier,
        where there are some.
        """
        if self.spec.post_mlp_norm is not None:
            value = _follow(self.layers[layer], self.spec.post_mlp_norm)(value)
        multiplier = getattr(self._text, "residual_multiplier", None)
        return value if multiplier is None else value * multiplier

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Vocabulary logits [.., n_vocab] in fp32 of final-normed residual streams [.., d_model], where those are."""
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden).float().to(hidden.device)
        # An argmax does not mind what follows, a likelihood does.
        if (scale := getattr(self._text, "logit_scale", None)) is not None:  # Cohere
            logits = logits * scale
        if (divisor := getattr(self._text, "logits_scaling", None)) is not None:  # Granite
            logits = logits / divisor
        if cap := getattr(self._text, "final_logit_softcapping", None):  # Gemma 2
            logits = torch.tanh(logits / cap) * cap
        return logits
