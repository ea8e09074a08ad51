"""Text to token rows with the places that matter marked; text is tokenised once, whole, with offsets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steam_engine.errors import EditError, UnsupportedModelError


@dataclass(frozen=True)
class Row:
    """One prompt as token ids, with 0-based positions in `ids`."""

    ids: tuple[int, ...]
    subjects: tuple[int, ...]  # last token of every occurrence of the subject before the target
    target: tuple[int, ...] = ()  # tokens of the new object
    answer: tuple[int, ...] = ()  # tokens of the answer sentence around the object, after the first subject
    answer_start: int = 0  # first token of the answer in a chat

    @property
    def n_inputs(self) -> int:
        """How many tokens must be run: nothing is predicted from the last token of a target or answer."""
        predicted = (*self.target, *self.answer)
        return max(predicted) if predicted else len(self.ids)


@dataclass(frozen=True)
class MarkedText:
    """A text and the character spans of its parts. `target` and `answer` are (start, end)."""

    text: str
    target: tuple[int, int] | None = None
    answer: tuple[int, int] | None = None


def sentence(template: str, subject: str) -> str:
    """The template with its subject, as the beginning of a sentence."""
    text = template.replace("{}", subject)
    return text[:1].upper() + text[1:]


def occurrences(text: str, names: Sequence[str]) -> list[tuple[int, int]]:
    """Character spans of whole-word mentions of any of `names` in `text`, longest names first, not overlapping."""
    ordered = sorted({name for name in names if name}, key=lambda name: (-len(name), name))
    if not ordered:
        return []
    pattern = "|".join(re.escape(name) for name in ordered)
    return [m.span() for m in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE)]


def encode(tokenizer: Any, marked: MarkedText, names: Sequence[str], chat: bool) -> Row:
    """Tokenises a marked text.

    Args:
        tokenizer: a fast tokenizer (offsets are needed).
        marked: the text; the subject is only looked for before the target.
        names: the subject and its aliases.
        chat: the text comes from a chat template and already holds its special tokens.

    Raises:
        UnsupportedModelError: the tokenizer gives no offsets.
        EditError: the subject is not in the text.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModelError(
            "This model's tokenizer does not report character offsets. Use a checkpoint that has a tokenizer.json."
        )
    encoded = tokenizer(marked.text, add_special_tokens=not chat, return_offsets_mapping=True)
    ids, offsets = list(encoded["input_ids"]), [tuple(o) for o in encoded["offset_mapping"]]
    horizon = marked.target[0] if marked.target else len(marked.text)

    def covering(start: int, end: int) -> tuple[int, ...]:
        return tuple(i for i, (a, b) in enumerate(offsets) if a < b and a < end and b > start)

    subjects = []
    for start, end in occurrences(marked.text[:horizon], names):
        subjects.append(covering(start, end)[-1])
    if not subjects:
        raise EditError(f"The subject '{names[0]}' does not occur in '{marked.text[-80:]}'.")
    target = covering(*marked.target) if marked.target else ()
    whole = covering(*marked.answer) if marked.answer else ()
    answer = tuple(i for i in whole if i not in target and i > subjects[0])
    return Row(tuple(ids), tuple(dict.fromkeys(subjects)), target, answer, whole[0] if whole else 0)


def pad_id(tokenizer: Any) -> int:
    """A token id to pad with; padding is always masked, so any valid id serves."""
    for value in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if value is not None:
            return int(value)
    return 0
