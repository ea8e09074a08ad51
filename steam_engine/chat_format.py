"""How a conversation becomes the text that the model continues; replies and edits must agree on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def has_chat_template(tokenizer: Any) -> bool:
    """Whether the model was trained on a chat format of its own."""
    return bool(getattr(tokenizer, "chat_template", None))


def render_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """The text up to where the assistant speaks next.

    Models without a chat template (base models) get a plain question-and-answer form.
    """
    if has_chat_template(tokenizer):
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
        return str(text)
    names = {"user": "Question", "assistant": "Answer"}
    lines = [f"{names[m['role']]}: {m['content']}" if m["role"] in names else m["content"] for m in messages]
    return "\n".join([*lines, "Answer: "]).rstrip(" ")


def answer_gap(tokenizer: Any) -> str:
    """What stands between the rendered chat and the first word of the answer."""
    return "" if has_chat_template(tokenizer) else " "
