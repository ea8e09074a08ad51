"""Looking into a forward pass and stepping into it, only ever inside a context manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def first_tensor(output: Any) -> torch.Tensor:
    """The hidden states of a module's output: layers return a bare tensor or a tuple, depending on the family."""
    tensor = output[0] if isinstance(output, tuple) else output
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor from the layer, got {type(tensor).__name__}")
    return tensor


@contextmanager
def captured(
    outputs: Mapping[str, nn.Module] | None = None, inputs: Mapping[str, nn.Module] | None = None
) -> Iterator[dict[str, Any]]:
    """Collects, under the given names, raw outputs and first inputs of modules while the context is open."""
    seen: dict[str, Any] = {}
    handles = []
    try:
        for name, module in (outputs or {}).items():
            handles.append(module.register_forward_hook(lambda _m, _a, out, name=name: seen.__setitem__(name, out)))
        for name, module in (inputs or {}).items():
            handles.append(
                module.register_forward_pre_hook(lambda _m, args, name=name: seen.__setitem__(name, args[0]))
            )
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def bypassed(layers: Sequence[nn.Module], output: Any) -> Iterator[None]:
    """Makes `layers` do nothing: each returns `output` at once.

    The layers stay in their places, so that a stack which looks up masks by layer index keeps working.
    """

    def passthrough(*_args: Any, **_kwargs: Any) -> Any:
        return output

    # An instance's own "forward" is how accelerate moves weights between devices: put it back afterwards.
    own = [layer.__dict__.get("forward") for layer in layers]
    try:
        for layer in layers:
            layer.__dict__["forward"] = passthrough
        yield
    finally:
        for layer, forward in zip(layers, own, strict=True):
            if forward is None:
                layer.__dict__.pop("forward", None)
            else:
                layer.__dict__["forward"] = forward


class _StopForwardError(Exception):
    """Raised inside a hook to leave a forward pass early; never leaves this module."""


@contextmanager
def stopping_after(module: nn.Module) -> Iterator[None]:
    """Ends the forward pass once `module` was entered: what lies above it is not computed."""

    def stop(_module: nn.Module, _args: Any) -> None:
        raise _StopForwardError

    handle = module.register_forward_pre_hook(stop)
    try:
        yield
    except _StopForwardError:
        pass
    finally:
        handle.remove()
