"""What cannot be edited is refused in one sentence that helps, before its weights are read where that is possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from steam_engine.architecture import Architecture
from steam_engine.errors import (
    EncoderDecoderError,
    MixtureOfExpertsError,
    MultimodalModelError,
    QuantisedModelError,
    UnsupportedModelError,
)
from steam_engine.loading import LoadedModel, load_model
from tests.steam_engine.test_families import edit_undo_reload
from tests.steam_engine.tiny import loaded_model, tiny_config, tiny_model, tiny_tokenizer

TEXT = {
    "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": 402, "sliding_window": 64, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EYES = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip


def refused(config: Any, folder: Path, kind: type[Exception], match: str) -> None:
    """By its config.json alone: there are no weights."""
    config.save_pretrained(folder)
    with pytest.raises(kind, match=match) as problem:
        load_model(str(folder), "cpu")
    assert type(problem.value) is kind
    assert len(str(problem.value)) < 400


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_encoder_decoders(family: str, tmp_path: Path) -> None:
    config = tiny_config(family, 300)
    refused(config, tmp_path, EncoderDecoderError, "edits decoder-only language models, for example Llama")


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "olmoe", "deepseek_v3", "gpt_oss"])
def test_mixtures_of_experts(family: str, tmp_path: Path) -> None:
    refused(tiny_config(family, 300), tmp_path, MixtureOfExpertsError, "Use a dense model")


def test_experts_that_the_configuration_does_not_tell() -> None:
    model = tiny_model("llama").model
    model.model.layers[3].mlp = nn.ModuleDict({"experts": nn.Linear(32, 32)})
    with pytest.raises(MixtureOfExpertsError, match="Use a dense model"):
        Architecture(model)


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "mistral3"])
def test_what_sees_and_has_no_text_model_in_transformers(family: str, tmp_path: Path) -> None:
    refused(tiny_config(family, 300), tmp_path, MultimodalModelError, "Use the text-only checkpoint")


def test_what_writes_no_text(tmp_path: Path) -> None:
    refused(tiny_config("vit", 300), tmp_path, UnsupportedModelError, "no language model of the family 'vit'")


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "awq", "fp8"])
def test_a_quantised_checkpoint(method: str, tmp_path: Path) -> None:
    config = tiny_config("llama", 300)
    config.quantization_config = {"quant_method": method, "load_in_4bit": True}
    refused(config, tmp_path, QuantisedModelError, rf"quantised \({method}\).*--dtype bfloat16.*model\.dequantize\(\)")


class Linear4bit(nn.Module):
    """As bitsandbytes': two numbers in a byte."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(linear.weight.numel() // 2, 1, dtype=torch.uint8), requires_grad=False)


class Linear8bitLt(nn.Module):
    """As bitsandbytes'."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.to(torch.int8), requires_grad=False)


class QuantLinear(nn.Module):
    """As GPTQ's: no weight at all."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("qweight", linear.weight.to(torch.int32))


class FP8Linear(nn.Module):
    """As transformers': a float that is not one to compute with."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.to(torch.float8_e4m3fn), requires_grad=False)


@pytest.mark.parametrize("packed", [Linear4bit, Linear8bitLt, QuantLinear, FP8Linear])
@pytest.mark.parametrize("family", ["llama", "stablelm"])
def test_packed_layers(family: str, packed: type[nn.Module]) -> None:
    model = tiny_model(family).model
    model.model.layers[2].mlp.down_proj = packed(model.model.layers[2].mlp.down_proj)
    with pytest.raises(QuantisedModelError, match=rf"quantised \({packed.__name__}\).*--dtype bfloat16"):
        Architecture(model)


def gemma_that_sees() -> LoadedModel:
    config = tiny_config("gemma3", 402, text_config=TEXT, vision_config=EYES, mm_tokens_per_image=4)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in model.model.language_model.parameters():
        if parameter.ndim > 1:
            parameter.mul_(4.0)
    return loaded_model(model, tiny_tokenizer(), "gemma3")


def test_the_text_of_a_gemma_that_sees_is_edited(tmp_path: Path, moments_cache: Path) -> None:
    made = gemma_that_sees()
    assert type(made.model).__name__ == "Gemma3ForConditionalGeneration"
    made.model.save_pretrained(tmp_path / "model")
    made.tokenizer.save_pretrained(tmp_path / "model")
    loaded, again = (load_model(str(tmp_path / "model"), "cpu") for _ in range(2))
    assert loaded.arch.is_known
    edit_undo_reload(loaded, again, tmp_path / "journal", moments_cache)
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = made.model(input_ids=ids).logits
    assert (made.arch.logits(made.arch.base(input_ids=ids)[0]) - expected).abs().max() < 1e-4
