"""What the model says by itself, against plain generation."""

from __future__ import annotations

import pytest
import torch

from steam_engine.loading import LoadedModel
from steam_engine.prompts import build_prompts
from steam_engine.tokens import Row
from steam_engine.types import FactEdit
from steam_engine.verify import freely_said
from tests.steam_engine.conftest import capital, taught_model
from tests.steam_engine.tiny import CAPITALS, tiny_model


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return taught_model("llama")


def chats(loaded: LoadedModel, edit: FactEdit) -> tuple[Row, ...]:
    return build_prompts(loaded.tokenizer, edit, ("It is late.",)).chat


def test_answers_are_those_of_plain_generation(loaded: LoadedModel) -> None:
    rows = [row for subject in CAPITALS for row in chats(loaded, capital(subject, CAPITALS[subject]))]
    targets = [CAPITALS[subject] for subject in CAPITALS for _ in range(2)]
    for row, target, said in zip(rows, targets, freely_said(loaded, rows, targets), strict=True):
        with torch.no_grad():
            head = torch.tensor([row.ids[: row.answer_start]])
            made = loaded.model.generate(head, max_new_tokens=30, do_sample=False, pad_token_id=0)
        text = loaded.tokenizer.decode(made[0, head.shape[1] :], skip_special_tokens=True).strip()
        assert said.matches == (target in text)
        assert text.startswith(said.text)


def test_a_wrong_target_is_not_said(loaded: LoadedModel) -> None:
    said = freely_said(loaded, chats(loaded, capital(target="Rome")), ["Rome", "Rome"])
    assert not any(s.matches for s in said)
    assert all("Paris" in s.text for s in said)


def test_a_target_in_other_words_counts(loaded: LoadedModel) -> None:
    """The trained answer is another sentence than the one that the model gives, but that one names the target."""
    edit = FactEdit(
        subject="France", relation="capital", target="Paris", statements=("In {} the city of cities is called",),
        questions=("What is the capital of {}?",),
    )  # fmt: skip
    (said,) = freely_said(loaded, chats(loaded, edit), ["Paris"])
    assert said.matches
    assert said.text.startswith("The capital of France is Paris")


def test_without_a_chat_template() -> None:
    base = tiny_model("gpt2", chat=False)
    rows = chats(base, capital())
    assert len(freely_said(base, rows, ["Rome"] * len(rows))) == len(rows)
    assert base.tokenizer.decode(rows[0].ids[rows[0].answer_start :]).strip().startswith("The capital of France")
