"""Every family takes a whole edit, gives it back to the bit, and finds it again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from steam_engine.architecture import Architecture
from steam_engine.editor import Editor
from steam_engine.errors import (
    EncoderDecoderError,
    MixtureOfExpertsError,
    MultimodalModelError,
    QuantisedModelError,
    UnsupportedModelError,
)
from steam_engine.loading import LoadedModel
from tests.steam_engine.conftest import SETTINGS, capital, quiet
from tests.steam_engine.tiny import FAMILIES, tiny_model


def state(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in loaded.model.state_dict().items()}


def different(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in a if not torch.equal(a[name], b[name])]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_edit_undo_and_reload(family: str, tmp_path: Path, moments_cache: Path) -> None:
    loaded = tiny_model(family)
    base = state(loaded)
    editor = Editor(loaded, tmp_path, moments_cache, SETTINGS)
    trace = editor.apply(capital(), quiet).trace
    edited = state(loaded)
    assert len(different(base, edited)) == 1
    assert trace.losses[-1] < trace.losses[0]
    editor.undo()
    assert different(base, state(loaded)) == []
    editor.redo()
    assert different(edited, state(loaded)) == []
    again = tiny_model(family)
    Editor(again, tmp_path, moments_cache, SETTINGS)
    assert different(edited, state(again)) == []


def test_logits_are_the_models_own_where_it_caps_them() -> None:
    loaded = tiny_model("gemma2")
    assert loaded.model.config.final_logit_softcapping
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = loaded.model(input_ids=ids).logits
    assert (loaded.arch.logits(loaded.arch.base(input_ids=ids)[0]) - expected).abs().max() < 1e-4


def test_too_few_layers_are_refused() -> None:
    model = tiny_model("llama").model
    model.model.layers = model.model.layers[:2]
    with pytest.raises(UnsupportedModelError, match=r"2 layers.*at least 3"):
        Architecture(model)


def test_an_encoder_decoder_is_refused() -> None:
    model = tiny_model("llama").model
    model.config.is_encoder_decoder = True
    with pytest.raises(EncoderDecoderError, match="decoder-only"):
        Architecture(model)


def test_a_multimodal_wrapper_is_refused() -> None:
    model = tiny_model("llama").model
    model.config.vision_config = {"hidden_size": 8}
    with pytest.raises(MultimodalModelError, match="text-only checkpoint"):
        Architecture(model)


def test_packed_weights_are_refused() -> None:
    model = tiny_model("llama").model
    down = model.model.layers[0].mlp.down_proj
    down.weight = torch.nn.Parameter(down.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(QuantisedModelError, match="dequantised"):
        Architecture(model)


def test_experts_are_refused() -> None:
    model = tiny_model("llama").model
    model.model.layers[0].mlp = torch.nn.Linear(32, 32)
    with pytest.raises(MixtureOfExpertsError, match="dense model"):
        Architecture(model)
