"""Text in the model's own words: openings for an edit's prompts, and passages for second moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from steam_engine.chat_format import render_chat
from steam_engine.placement import input_device
from steam_engine.tokens import pad_id

OPENINGS = (
    "The", "In", "It is", "This", "When", "However, the", "She", "A", "During the", "One of the", "There are",
    "After the", "Many people", "The first", "According to", "He was", "In the early", "The city of",
    "Scientists", "The history of", "At the time,", "Although", "The company", "The book", "They", "If you",
    "The most", "For example,", "Music", "As a child,", "The river", "Today,",
)  # fmt: skip
"""Unfinished sentences of every kind of English prose; the model finishes them."""

QUESTIONS = (
    "Tell me about the history of bread.", "What is photosynthesis?", "Name three famous painters.",
    "How do airplanes fly?", "Which languages are spoken in Switzerland?", "Who wrote Hamlet?",
    "Write a short poem about the sea.", "What should I see in a big European city?",
    "Explain how a bank works.", "What is the largest animal on Earth?", "Give me a recipe for soup.",
    "Who was Marie Curie?", "Where is Mount Everest?", "What does a software engineer do?",
    "Describe a typical day in Tokyo.", "What is the difference between a lake and a river?",
    "How can I learn to play chess?", "Which company makes the iPhone?", "What are the planets?",
    "Summarise the plot of Romeo and Juliet.", "What currency is used in Japan?", "When did the war end?",
    "Is it healthy to run every day?", "What is a democracy?", "Who painted the Mona Lisa?",
    "Translate 'good morning' into Spanish.", "How far is the Moon?", "What is the capital of Australia?",
    "Tell me a story about a fox.", "Why is the sky blue?", "What is the best way to save money?",
    "Which country has the most people?",
)  # fmt: skip
"""Everyday questions; the model's answers put chat-template tokens and answer sentences into the sample."""


@torch.no_grad()
def sample(model: Any, tokenizer: Any, prompts: Sequence[str], n_tokens: int, seed: int, chat: bool) -> list[list[int]]:
    """Token ids of each prompt with up to `n_tokens` sampled tokens after it (top-p 0.95, temperature 1).

    The same seed gives the same text on the same machine; the global random state is left as it was.
    """
    device = input_device(model)
    encoded = [tokenizer(p, add_special_tokens=not chat)["input_ids"] for p in prompts]
    width = max(map(len, encoded))
    pad = pad_id(tokenizer)
    ids = torch.tensor([[pad] * (width - len(e)) + list(e) for e in encoded], device=device)
    mask = torch.tensor([[0] * (width - len(e)) + [1] * len(e) for e in encoded], device=device)
    cuda = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        out = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=n_tokens, do_sample=True, temperature=1.0,
            top_p=0.95, top_k=0, pad_token_id=pad,
        )  # fmt: skip
    ends = model.generation_config.eos_token_id
    end_ids = set(ends if isinstance(ends, list) else [ends]) - {None}
    rows = []
    for prompt, row in zip(encoded, out[:, width:].tolist(), strict=True):
        stop = next((i + 1 for i, token in enumerate(row) if token in end_ids), len(row))
        rows.append([*prompt, *row[:stop]])
    return rows


def sample_contexts(model: Any, tokenizer: Any, n: int, seed: int = 0) -> tuple[str, ...]:
    """`n` short openings (about ten tokens, closed by a full stop) to put before a statement."""
    contexts = []
    for row in sample(model, tokenizer, OPENINGS[:n], 8, seed, chat=False):
        text = tokenizer.decode(row, skip_special_tokens=True)
        words = " ".join(text.replace("{", "").replace("}", "").split())
        contexts.append(words.rstrip(" .,;:") + ".")
    return tuple(contexts)


def sample_passages(model: Any, tokenizer: Any, batch: int, seed: int, n_tokens: int = 96) -> list[list[int]]:
    """One batch of passages: even batches continue prose, odd ones answer chat questions."""
    if batch % 2 == 0:
        return sample(model, tokenizer, OPENINGS, n_tokens, seed + batch, chat=False)
    prompts = [render_chat(tokenizer, [{"role": "user", "content": q}]) for q in QUESTIONS]
    return sample(model, tokenizer, prompts, n_tokens, seed + batch, chat=True)
