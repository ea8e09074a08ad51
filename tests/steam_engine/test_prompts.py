"""The rows an edit is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steam_engine.loading import LoadedModel
from steam_engine.prompts import build_prompts
from tests.steam_engine.conftest import capital, taught_model

CONTEXTS = ("It is late.", "In a city.")


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return taught_model("llama")


def test_the_first_plain_row_is_the_bare_statement(loaded: LoadedModel) -> None:
    """What a person types without anything before it is learnt as it is."""
    rows = build_prompts(loaded.tokenizer, capital(), CONTEXTS).plain
    texts = [loaded.tokenizer.decode(row.ids, skip_special_tokens=True) for row in rows]
    assert texts[0] == f"The capital of France is {capital().target}"
    assert texts[1].startswith("In a city. ")


def test_a_subject_at_the_very_first_token_keeps_its_context(loaded: LoadedModel) -> None:
    """The first token is an attention sink: its key says nothing about the subject."""
    assert len(loaded.tokenizer("X")["input_ids"]) == 1
    edit = replace(capital(), subject="X", statements=("{} is in the city of",))
    rows = build_prompts(loaded.tokenizer, edit, ("In a city.", "In the early days.")).plain
    assert loaded.tokenizer.decode(rows[0].ids).startswith("In a city. X is in")
    assert all(min(row.subjects) > 0 for row in rows)
