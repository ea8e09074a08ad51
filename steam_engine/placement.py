"""Where the parts of a model lie, and their weights: accelerate may spread a model over devices, memory and disk.

A part that is offloaded has empty weights between its runs; the real ones are in a map beside it, and a hook puts
them in place for each run. A weight of such a part is changed in that map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook
from torch import nn


def _hook(module: nn.Module) -> Any:
    """The module's hook that moves its inputs and weights, if there is one."""
    hook = getattr(module, "_hf_hook", None)
    return hook if isinstance(hook, AlignDevicesHook) else None


def device_of(module: nn.Module) -> torch.device:
    """Where a module with weights of its own computes, and its outputs lie."""
    hook = _hook(module)
    if hook is not None and hook.execution_device is not None:
        return torch.device(hook.execution_device)
    return next(module.parameters()).device


def input_device(model: Any) -> torch.device:
    """Where a language model wants its token ids."""
    return device_of(model.get_input_embeddings())


def weight_of(module: nn.Module, name: str = "weight") -> torch.Tensor:
    """A parameter's values, wherever they are; to be read only."""
    own: torch.Tensor = getattr(module, name)
    if not own.is_meta:
        return own
    kept: torch.Tensor = _hook(module).weights_map[name]
    return kept


@torch.no_grad()
def set_weight(module: nn.Module, values: torch.Tensor) -> None:
    """Makes `values` a module's weight, in place where it is not offloaded; what was on the disk is in memory then."""
    own = module.weight
    assert isinstance(own, torch.Tensor)
    if not own.is_meta:
        own.copy_(values)
        return
    prefixed = _hook(module).weights_map  # a view, by the module's name, of one loader for the whole model
    kept = prefixed.dataset
    kept = getattr(kept, "state_dict", kept)  # what is there goes before what is on the disk
    kept[f"{prefixed.prefix}weight"] = values.to("cpu", own.dtype, copy=True)


def named_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter's name and values, each tied one once, as `named_parameters` does where nothing is offloaded."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    for name, parameter in model.named_parameters():
        if not parameter.is_meta:
            yield name, parameter
        elif name not in tied:
            owner, _, own = name.rpartition(".")
            yield name, weight_of(model.get_submodule(owner), own)
