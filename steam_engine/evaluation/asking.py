"""Asks a model in its own words: greedy answers in chat, and greedy continuations of unfinished sentences."""

from __future__ import annotations

from collections.abc import Sequence

from steam_engine.chat_format import render_chat
from steam_engine.generating import generate
from steam_engine.loading import LoadedModel

BATCH = 16  # questions at once; more is no faster on a few cores
ANSWER_TOKENS = 40
CONTINUATION_TOKENS = 16  # an object comes at once, or the sentence is about something else


def is_unfinished(text: str) -> bool:
    """Whether a text is the beginning of a sentence and not something to be answered."""
    return not text.rstrip(" \"'”’)").endswith((".", "?", "!", ":", "。", "？", "！", "..."))


def ask(loaded: LoadedModel, prompts: Sequence[str], finish: Sequence[bool]) -> tuple[str, ...]:
    """Greedy answers, in order.

    Args:
        loaded: the model with its weights as they are.
        prompts: what is said to it.
        finish: for each, whether the model shall go on writing (no chat template, the first line counts) instead of
            answering in chat.
    """
    answers: dict[int, str] = {}
    for unfinished in (False, True):
        chosen = [i for i, kind in enumerate(finish) if kind == unfinished]
        for begin in range(0, len(chosen), BATCH):
            part = chosen[begin : begin + BATCH]
            answers |= zip(part, _greedy(loaded, [prompts[i] for i in part], unfinished), strict=True)
    return tuple(answers[i] for i in range(len(prompts)))


def _greedy(loaded: LoadedModel, prompts: Sequence[str], unfinished: bool) -> list[str]:
    tokenizer = loaded.tokenizer
    if unfinished:
        rows = [list(tokenizer(text)["input_ids"]) for text in prompts]
    else:
        texts = [render_chat(tokenizer, [{"role": "user", "content": text}]) for text in prompts]
        rows = [list(tokenizer(text, add_special_tokens=not loaded.is_chat)["input_ids"]) for text in texts]
    made = generate(loaded, rows, CONTINUATION_TOKENS if unfinished else ANSWER_TOKENS)
    answers = [str(tokenizer.decode(row, skip_special_tokens=True)).strip() for row in made]
    if unfinished:
        return [answer.split("\n")[0] for answer in answers]
    # A model without an end of turn goes on and asks itself.
    return answers if loaded.is_chat else [answer.partition("\nQuestion:")[0].strip() for answer in answers]
