"""Questions that an export must answer as the live model does, and how the two are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from steam_engine.chat_format import render_chat
from steam_engine.errors import ExportError
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel
from steam_engine.text import mentions
from steam_engine.tokens import pad_id

MAX_ANSWER_TOKENS = 32


@dataclass(frozen=True)
class Question:
    """Something to ask; `fact` is what an edit made the answer."""

    text: str
    fact: str | None = None


@dataclass(frozen=True)
class Reading:
    """What a model says to some questions, greedily, each as if it were the first of a conversation."""

    ids: tuple[tuple[int, ...], ...]  # of the prompts
    answers: tuple[str, ...]
    logits: torch.Tensor  # [n_questions, n_vocab], fp32 on the CPU: of the first word of each answer


def prompts(loaded: LoadedModel, questions: Sequence[Question]) -> list[str]:
    """The questions as the model reads them."""
    return [render_chat(loaded.tokenizer, [{"role": "user", "content": question.text}]) for question in questions]


@torch.no_grad()
def ask_live(loaded: LoadedModel, questions: Sequence[Question], work: Work) -> Reading:
    """What the model in memory says, one question at a time (as the readers do). At least one question.

    Raises:
        ExportError: stopped.
    """
    ids, answers, logits = [], [], []
    for prompt in prompts(loaded, questions):
        work.go_on()
        row = loaded.tokenizer(prompt, add_special_tokens=not loaded.is_chat, return_tensors="pt")["input_ids"]
        row = row.to(loaded.device)
        made = loaded.model.generate(
            input_ids=row, attention_mask=torch.ones_like(row), max_new_tokens=MAX_ANSWER_TOKENS, do_sample=False,
            pad_token_id=pad_id(loaded.tokenizer), return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        ids.append(tuple(row[0].tolist()))
        answers.append(str(loaded.tokenizer.decode(made.sequences[0, row.shape[1] :], skip_special_tokens=True)))
        logits.append(made.logits[0][0].float().cpu())
    return Reading(tuple(ids), tuple(answers), torch.stack(logits))


def same_answers(questions: Sequence[Question], live: Reading, read: Reading) -> None:
    """For exports that hold the very same weights. Raises ExportError unless every answer is the same."""
    for question, ours, theirs in zip(questions, live.answers, read.answers, strict=True):
        if ours != theirs:
            raise ExportError(
                f"The export answers '{question.text}' with '{theirs}', the live model with '{ours}'; it was removed."
            )


def same_tokens(questions: Sequence[Question], live: Reading, read: Reading) -> None:
    """Raises ExportError unless every question is split into the same tokens."""
    for question, ours, theirs in zip(questions, live.ids, read.ids, strict=True):
        if ours != theirs:
            raise ExportError(
                f"The export splits '{question.text}' into other tokens than the live model; it was removed."
            )


def same_facts(questions: Sequence[Question], live: Reading, read: Reading) -> None:
    """For exports whose weights are rounded otherwise, which may word an answer otherwise.

    Raises:
        ExportError: an edited fact that the live model says is lost.
    """
    for question, ours, theirs in zip(questions, live.answers, read.answers, strict=True):
        fact = (question.fact or "",)
        if mentions(ours, fact) and not mentions(theirs, fact):
            raise ExportError(
                f"The export answers '{question.text}' with '{theirs}' and lost the edit to '{question.fact}'; "
                "it was removed."
            )


def same_opinion(questions: Sequence[Question], live: Reading, read: Reading, limit: float) -> None:
    """Raises ExportError where the first word of an answer is drawn otherwise: KL(live || read) > `limit` nats."""
    width = min(live.logits.shape[1], read.logits.shape[1])  # padded vocabularies may be longer
    ours, theirs = (reading.logits[:, :width].log_softmax(-1) for reading in (live, read))
    divergence = torch.nn.functional.kl_div(theirs, ours, reduction="none", log_target=True).sum(-1)
    worst = int(divergence.argmax())
    if not float(divergence[worst]) <= limit:  # also when it is not a number
        raise ExportError(
            f"The export answers '{questions[worst].text}' too differently from the live model "
            f"({float(divergence[worst]):.3f} nats, at most {limit:g}); it was removed."
        )
