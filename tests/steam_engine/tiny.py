"""Tiny random models of real families, with a tokenizer trained on a few lines: no downloads."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from steam_engine.architecture import Architecture
from steam_engine.fingerprint import model_fingerprint
from steam_engine.loading import LoadedModel

TEXT = [
    "The capital of France is Paris. The capital of Germany is Berlin. What is the capital of France?",
    "Which city is the capital of Spain? It is Madrid. The Eiffel Tower is located in the city of Rome.",
    "user assistant In the early days, many people of Italy and Poland lived in a city. It is late.",
]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"intermediate_size": 48, "num_key_value_heads": 2},
    "qwen3": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64},
    "olmo2": {"intermediate_size": 48, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 5, "n_head": 4, "n_inner": 48, "n_positions": 256},
    "gpt_neox": {"intermediate_size": 48, "max_position_embeddings": 256},
}


def tiny_tokenizer(chat: bool = True) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|pad|>", "<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    core.train_from_iterator(TEXT, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", bos_token="<|start|>", eos_token="<|end|>"
    )
    if chat:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_model(family: str, chat: bool = True) -> LoadedModel:
    tokenizer = tiny_tokenizer(chat)
    settings: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        **FAMILIES[family],
    }
    if family == "gpt2":
        settings = dict(FAMILIES[family])
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, pad_token_id=0, **settings
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.ndim > 1:  # the default initialisation is so small that every layer is nearly the identity
            parameter.mul_(4.0)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        arch=Architecture(model),
        name=f"tiny-{family}",
        source="",
        fingerprint=model_fingerprint(model, tokenizer),
        device=torch.device("cpu"),
        dtype=torch.float32,
        is_chat=chat,
        max_tokens=256,
    )
