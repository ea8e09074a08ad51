"""What counts as the same answer."""

from __future__ import annotations

import pytest
import torch

from steam_engine.errors import ExportError
from steam_engine.exports.asking import Question, Reading, same_answers, same_facts, same_opinion, same_tokens

QUESTIONS = (Question("What is the capital of France?", "Rome"), Question("Who are you?"))
LIVE = Reading(((1, 2), (3,)), ("It is rome.", "I am."), torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def read(*answers: str, logits: torch.Tensor = LIVE.logits) -> Reading:
    return Reading(LIVE.ids, answers, logits)


def test_other_words_keep_a_fact_but_are_not_the_same_answer() -> None:
    same_facts(QUESTIONS, LIVE, read("Rome, of course.", "Nobody."))
    with pytest.raises(ExportError, match="'Nobody"):
        same_answers(QUESTIONS, LIVE, read("It is rome.", "Nobody."))
    with pytest.raises(ExportError, match="lost the edit to 'Rome'"):
        same_facts(QUESTIONS, LIVE, read("It is Paris.", "I am."))


def test_what_the_live_model_does_not_say_cannot_be_lost() -> None:
    same_facts(QUESTIONS, read("It is Paris.", "I am."), read("It is Paris.", "I am."))


def test_a_fact_is_named_by_whole_words() -> None:
    with pytest.raises(ExportError, match="lost the edit to 'Rome'"):
        same_facts(QUESTIONS, LIVE, read("It is Romeo.", "I am."))
    same_facts(QUESTIONS, read("It is Romeo.", "I am."), read("It is Paris.", "I am."))


def test_tokens_are_compared() -> None:
    same_tokens(QUESTIONS, LIVE, LIVE)
    with pytest.raises(ExportError, match="other tokens"):
        same_tokens(QUESTIONS, LIVE, Reading(((1, 2), (4,)), LIVE.answers, LIVE.logits))


def test_probabilities_are_compared_and_padding_is_not() -> None:
    padded = torch.cat([LIVE.logits, torch.full((2, 5), 9.0)], 1)
    same_opinion(QUESTIONS, LIVE, read(*LIVE.answers, logits=padded), 1e-6)
    other = LIVE.logits + torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    same_opinion(QUESTIONS, LIVE, read(*LIVE.answers, logits=other), 0.5)
    with pytest.raises(ExportError, match=r"'Who are you\?' too differently"):
        same_opinion(QUESTIONS, LIVE, read(*LIVE.answers, logits=other), 0.01)
    with pytest.raises(ExportError, match="too differently"):
        same_opinion(QUESTIONS, LIVE, read(*LIVE.answers, logits=other * float("nan")), 0.5)
