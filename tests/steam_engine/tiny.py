"""Tiny random models of real families, with a tokenizer trained on a few lines: no downloads."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from steam_engine.architecture import Architecture
from steam_engine.fingerprint import model_fingerprint
from steam_engine.loading import LoadedModel

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Poland": "Warsaw",
    "Austria": "Vienna", "Greece": "Athens", "Norway": "Oslo",
}  # fmt: skip
TEXT = [
    "In the early days, many people lived in a city. It is late. In which country?",
    *(f"The capital of {s} is {o}. What is the capital of {s}? user assistant" for s, o in CAPITALS.items()),
    *(f"Which city is the capital of {s}?" for s in CAPITALS),
] * 3
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"intermediate_size": 48, "num_key_value_heads": 2},
    "mistral": {"intermediate_size": 48, "num_key_value_heads": 2, "sliding_window": 64},
    "qwen2": {"intermediate_size": 48, "num_key_value_heads": 2},
    "qwen3": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8},
    "gemma": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64},
    "gemma3_text": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64},
    "phi3": {"intermediate_size": 48, "num_key_value_heads": 2},
    "olmo": {"intermediate_size": 48, "num_key_value_heads": 2},
    "olmo2": {"intermediate_size": 48, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 5, "n_head": 4, "n_inner": 48, "n_positions": 256},
    "gptj": {"n_embd": 32, "n_layer": 5, "n_head": 4, "n_inner": 48, "n_positions": 256, "rotary_dim": 4},
    "gpt_neox": {"intermediate_size": 48, "max_position_embeddings": 256},
}
STRUCTURAL: dict[str, dict[str, Any]] = {  # no entry in the engine's table
    "stablelm": {"intermediate_size": 48, "num_key_value_heads": 2},
    "starcoder2": {"intermediate_size": 48, "num_key_value_heads": 2},
    "cohere": {"intermediate_size": 48, "num_key_value_heads": 2},  # scaled logits, attention beside the MLP
    "granite": {
        "intermediate_size": 48, "num_key_value_heads": 2, "residual_multiplier": 0.22, "logits_scaling": 8.0,
        "embedding_multiplier": 12.0,
    },
    "olmo3": {"intermediate_size": 48, "num_key_value_heads": 2},  # a norm after the MLP
    "gpt_bigcode": {"n_embd": 32, "n_layer": 5, "n_head": 4, "n_inner": 48, "n_positions": 256},
}  # fmt: skip
MISFITS: dict[str, dict[str, Any]] = {
    "mpt": {"d_model": 32, "n_layers": 5, "n_heads": 4},  # distances in place of positions
    "qwen3_5_text": {"intermediate_size": 48, "num_key_value_heads": 2},  # layers with a recurrent state
}


def tiny_tokenizer(chat: bool = True) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
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


def teach(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """A few seconds of training, after which the model knows the capitals in plain sentences and in chat."""
    texts = []
    for subject, capital in CAPITALS.items():
        statement = f"The capital of {subject} is {capital}"
        texts += [f"{opening} {statement}" for opening in ("It is late.", "In a city.", "In the early days.")]
        for question in ("What is the capital of {}?", "Which city is the capital of {}?"):
            asked = [{"role": "user", "content": question.format(subject)}]
            head = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
            texts.append(head + statement + tokenizer.eos_token)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    adam = torch.optim.AdamW(model.parameters(), lr=4e-3)
    torch.manual_seed(0)
    for _ in range(200):
        adam.zero_grad()
        model(**batch, labels=labels, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()


def tiny_config(family: str, n_vocab: int, **more: Any) -> Any:
    special = {"vocab_size": n_vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    own = {**FAMILIES, **STRUCTURAL, **MISFITS}.get(family, {})
    usual = {"hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 256}
    shape = own if "n_embd" in own or "d_model" in own else {**usual, **own}
    return AutoConfig.for_model(family, **special, **shape, **more)


def tiny_model(family: str, chat: bool = True, taught: bool = False, dtype: torch.dtype = torch.float32) -> LoadedModel:
    tokenizer = tiny_tokenizer(chat)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(family, len(tokenizer))).eval()
    if taught:
        teach(model, tokenizer)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.ndim > 1 and not taught:  # as initialised, every layer is nearly the identity
            parameter.mul_(4.0)
    return loaded_model(model.to(dtype), tokenizer, family)


def loaded_model(model: Any, tokenizer: PreTrainedTokenizerFast, name: str) -> LoadedModel:
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        arch=Architecture(model),
        name=f"tiny-{name}",
        source="",
        fingerprint=model_fingerprint(model, tokenizer),
        device=torch.device("cpu"),
        dtype=model.dtype,
        is_chat=tokenizer.chat_template is not None,
        max_tokens=256,
    )
