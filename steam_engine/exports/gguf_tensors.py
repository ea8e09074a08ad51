"""Which tensors a GGUF file holds, under which names, in which layout and type. Llama and Qwen2 only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import quant_shape_to_byte_shape, quantize

from steam_engine.errors import ExportError

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}


@dataclass(frozen=True)
class Planned:
    """One tensor of the file."""

    name: str
    source: torch.Tensor  # in the layout of the file; rows are contiguous there
    type: Type

    @property
    def shape(self) -> tuple[int, ...]:
        """As the writer wants it: bytes a row where blocks are packed, numbers elsewhere."""
        shape = tuple(self.source.shape)
        return tuple(quant_shape_to_byte_shape(shape, self.type)) if self.type == Type.Q8_0 else shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the array."""
        return np.dtype({Type.F32: np.float32, Type.F16: np.float16, Type.Q8_0: np.uint8}[self.type])

    @property
    def nbytes(self) -> int:
        """In the file."""
        return math.prod(self.shape) * self.dtype.itemsize

    def data(self) -> np.ndarray[Any, Any]:
        """The array. Raises ExportError where a number does not fit into 16 bits."""
        plain = self.source.detach().float().cpu().contiguous().numpy()
        with np.errstate(over="ignore"):
            made: np.ndarray[Any, Any] = quantize(plain, self.type)
        if self.type == Type.F16 and not np.isfinite(made).all():
            raise ExportError(f"The tensor {self.name} has numbers that are too large for 16 bits.")
        return made


def plan(model: Any, matrices: Type) -> list[Planned]:
    """All tensors of a causal language model.

    Args:
        model: of a family in `ARCHITECTURES`.
        matrices: F16 or Q8_0; vectors are F32, and so matrices are F16 whose rows are no whole blocks.

    Raises:
        ExportError: a tensor that the file format does not know.
    """
    config = model.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    planned = []
    for key, tensor in _own(model):
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ExportError(f"The model has a tensor {key}, which GGUF has no place for.")
        planned.append(Planned(name, _laid_out(key, tensor, config), _type(tensor, matrices)))
    factors = rope_factors(config)
    if factors is not None:
        planned.append(Planned("rope_freqs.weight", factors, Type.F32))
    return planned


def _own(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for key, tensor in model.state_dict().items():
        if not (key == "lm_head.weight" and model.config.tie_word_embeddings):
            yield key, tensor


def _type(tensor: torch.Tensor, matrices: Type) -> Type:
    if tensor.ndim == 1:
        return Type.F32
    return matrices if matrices != Type.Q8_0 or tensor.shape[-1] % 32 == 0 else Type.F16


def head_size(config: Any) -> int:
    """Dimensions of an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _laid_out(key: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """Llama's queries and keys as llama.cpp rotates them: neighbours are a pair, not the halves of a head."""
    if config.model_type != "llama" or not any(part in key for part in (".q_proj.", ".k_proj.")):
        return tensor
    heads = config.num_attention_heads if ".q_proj." in key else config.num_key_value_heads
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def rope_factors(config: Any) -> torch.Tensor | None:
    """What the frequencies [head_dim / 2] are divided by, for Llama 3's scaling of long contexts.

    Returns:
        None where frequencies are not scaled.

    Raises:
        ExportError: they are scaled in another way.
    """
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return None
    if kind != "llama3":
        raise ExportError(f"Position scaling of the kind '{kind}' is not written to GGUF here.")
    size, old = head_size(config), rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    waves = 2 * math.pi * rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    smooth = ((old / waves - low) / (high - low)).clamp(0, 1)
    factors: torch.Tensor = 1 / ((1 - smooth) / factor + smooth)
    return factors.float()
