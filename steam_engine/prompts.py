"""Turns a FactEdit into the prompts that an edit is trained on: plain sentences and chat, each with its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

from steam_engine.chat_format import answer_gap, render_chat
from steam_engine.tokens import MarkedText, Row, encode, sentence
from steam_engine.types import ChatExample, FactEdit

NEIGHBOUR_CONTEXTS = 1  # openings before each neighbour's statement
Role = Literal["edit", "hop", "essence"]  # the new object is said; what follows from it is said; nothing changes


@dataclass(frozen=True)
class PromptSet:
    """Rows of one edit. Every row holds the subject at least once."""

    plain: tuple[Row, ...]  # context + statement + object; the first without a context, where it can be
    chat: tuple[Row, ...]  # the user asks, the assistant answers with the statement and the object
    hops: tuple[Row, ...]  # composed questions whose answers follow from the edit
    essence: Row  # "{subject} is a"
    kept: tuple[Row, ...] = ()  # chats of the subject's earlier edits, which stay said

    @property
    def own(self) -> tuple[Row, ...]:
        """The rows that say the new fact; they come first in `rows`."""
        return (*self.plain, *self.chat)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows in a fixed order: plain, chat, kept, hops, essence."""
        return (*self.own, *self.kept, *self.hops, self.essence)

    @property
    def roles(self) -> tuple[Role, ...]:
        """What each of `rows` is for."""
        n_edits = len(self.own) + len(self.kept)
        roles: list[Role] = ["edit"] * n_edits
        roles += ["hop"] * len(self.hops)
        return (*roles, "essence")

    def batches(self, n: int) -> tuple[tuple[int, ...], ...]:
        """Indices into `rows` for `n` kinds of step (fewer where there are not so many chats or statements).

        Each has its share of every kind of row, and the essence.
        """
        k = max(1, min(n, len(self.plain), len(self.chat)))
        kinds = [range(len(kind)) for kind in (self.plain, self.chat, self.kept, self.hops)]
        share = [i % k for kind in kinds for i in kind]
        return tuple((*(i for i, b in enumerate(share) if b == batch), len(share)) for batch in range(k))


def plain_text(context: str, statement: str, subject: str, target: str) -> MarkedText:
    """A context or none, the statement and its object: "It is late. The capital of France is Rome"."""
    head = f"{context} {sentence(statement, subject)}".lstrip()
    text = f"{head} {target}"
    return MarkedText(text, target=(len(head) + 1, len(text)))


def chat_text(tokenizer: Any, question: str, opening: str, target: str) -> MarkedText:
    """A chat in which the assistant answers `question` with `opening` and the object."""
    header = render_chat(tokenizer, [{"role": "user", "content": question}]) + answer_gap(tokenizer)
    head = header + opening
    text = f"{head} {target}"
    start = len(head) + 1
    return MarkedText(text, target=(start, len(text)), answer=(len(header), len(text)))


def hop_text(tokenizer: Any, example: ChatExample) -> MarkedText:
    """A chat whose whole answer is the target."""
    header = render_chat(tokenizer, [{"role": "user", "content": example.question}]) + answer_gap(tokenizer)
    text = header + example.answer
    return MarkedText(text, target=(len(header), len(text)))


def build_prompts(tokenizer: Any, edit: FactEdit, contexts: Sequence[str], kept: Sequence[FactEdit] = ()) -> PromptSet:
    """All rows of an edit.

    Args:
        tokenizer: the model's fast tokenizer.
        edit: what shall change.
        contexts: sentence openings of the model's own, one for every plain statement. The first one is left away
            where the subject then does not end with the very first token.
        kept: earlier edits of the same subject; a delta changes what they say, so they are asked as well.

    Raises:
        EditError: a template lost the subject.
    """
    names = (edit.subject, *edit.aliases)
    plain = [
        encode(tokenizer, plain_text(context, statement, edit.subject, edit.target), names, chat=False)
        for context, statement in zip(contexts, cycle(edit.statements), strict=False)
    ]
    bare = encode(tokenizer, plain_text("", edit.statements[0], edit.subject, edit.target), names, chat=False)
    if min(bare.subjects) > 0:  # the very first token has the key of an attention sink and not its own
        plain[0] = bare
    chat = _chats(tokenizer, edit, names)
    earlier = [row for old in kept for row in _chats(tokenizer, old, names)[:1]]
    hops = [encode(tokenizer, hop_text(tokenizer, example), names, chat=True) for example in edit.hop_examples]
    essence = encode(tokenizer, MarkedText(f"{contexts[0]} {sentence('{} is a', edit.subject)}"), names, chat=False)
    return PromptSet(tuple(plain), tuple(chat), tuple(hops), essence, tuple(earlier))


def _chats(tokenizer: Any, edit: FactEdit, names: Sequence[str]) -> list[Row]:
    opening = sentence(edit.statements[0], edit.subject)
    texts = [chat_text(tokenizer, sentence(q, edit.subject), opening, edit.target) for q in edit.questions]
    return [encode(tokenizer, text, names, chat=True) for text in texts]


def neighbour_rows(tokenizer: Any, edit: FactEdit, contexts: Sequence[str]) -> tuple[Row, ...]:
    """Prompts of other subjects of the relation, whose keys the solve keeps in place."""
    rows = []
    for name in edit.neighbours:
        rows += [
            encode(tokenizer, MarkedText(f"{context} {sentence(edit.statements[0], name)}"), (name,), chat=False)
            for context in contexts[:NEIGHBOUR_CONTEXTS]
        ]
        header = render_chat(tokenizer, [{"role": "user", "content": sentence(edit.questions[0], name)}])
        opening = answer_gap(tokenizer) + sentence(edit.statements[0], name)
        rows.append(encode(tokenizer, MarkedText(header + opening), (name,), chat=True))
    return tuple(rows)
