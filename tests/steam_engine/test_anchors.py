"""Which anchors an edit is aligned with, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from steam_engine.anchors import Anchors, find_anchors
from steam_engine.editor import Editor
from steam_engine.elicit import elicited_references, listed
from steam_engine.loading import LoadedModel
from steam_engine.objective import Objective
from steam_engine.prompts import build_prompts
from steam_engine.settings import AnchorKind
from steam_engine.suffix import Prefill
from steam_engine.types import Reference
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model

NewEditor = Callable[..., Editor]
CONTEXTS = ("It is late.", "In a city.", "In the early days.")
OTHER = Reference("Madrid", "The city of {} is", "Which city is the capital of {}?", "Rome")
EDIT = replace(capital(), references=(*capital().references, OTHER))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return taught_model("llama")


def found(loaded: LoadedModel, kind: AnchorKind, at_prompt: bool = False) -> Anchors | None:
    return find_anchors(loaded.arch, loaded.tokenizer, EDIT, (2, 3), CONTEXTS, kind, at_prompt)


def test_kinds_of_references(loaded: LoadedModel) -> None:
    everything, same = found(loaded, "auto"), found(loaded, "relation")
    assert everything is not None
    assert same is not None
    assert same.subjects == ("Italy",)
    assert [name for name, _ in same.dropped] == ["Poland"]
    assert {name for name, _ in everything.dropped} | set(everything.subjects) == {"Italy", "Poland", "Madrid"}
    told = found(loaded, "in-context")
    assert told is not None
    assert (told.kind, told.subjects, told.dropped) == ("in-context", ("France",), ())
    assert found(loaded, "none") is None


def test_the_other_relations_alone(loaded: LoadedModel) -> None:
    other = found(loaded, "object")
    tried = set(other.subjects) | {n for n, _ in other.dropped} if other else {"Madrid"}
    assert tried == {"Madrid"}  # known or not, only the reference of another relation was looked at


def test_where_the_residual_stream_is_read(loaded: LoadedModel) -> None:
    subject, prompt = found(loaded, "relation"), found(loaded, "relation", at_prompt=True)
    assert subject is not None
    assert prompt is not None
    assert not torch.allclose(subject.vectors[2], prompt.vectors[2], atol=1e-2)


def test_alignment_is_measured_where_the_anchor_was_read(loaded: LoadedModel) -> None:
    """Reading the edit's own unedited residual stream as the anchor must give a perfect alignment at delta = 0."""
    prompts = build_prompts(loaded.tokenizer, EDIT, CONTEXTS[:1])
    prefill = Prefill(loaded.arch, 1, prompts.rows)
    row = prompts.plain[0]
    for at_prompt in (False, True):
        at = row.target[0] - 1 if at_prompt else row.subjects[-1]
        with torch.no_grad():
            states = loaded.arch.base(input_ids=torch.tensor([row.ids]), output_hidden_states=True).hidden_states
        anchors = Anchors("reference", {2: states[3][0, at]}, ("x",), ())
        only = [0, len(prompts.rows) - 1]
        settings = replace(SETTINGS, align_at_prompt=at_prompt)
        objective = Objective(prefill.model(only), [prompts.roles[r] for r in only], [anchors], settings)
        (terms,) = objective(torch.zeros(1, loaded.arch.d_model)).edits
        assert terms.alignment == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("kind", ["none", "elicited", "in-context"])
def test_whole_edits_with_every_kind(new_editor: NewEditor, kind: AnchorKind) -> None:
    trace = new_editor(settings=replace(SETTINGS, anchors=kind)).apply(capital(), quiet).trace
    if kind == "in-context":
        assert trace.anchor_kind == "in-context"
    else:  # what a tiny model lists is no reference that it knows
        assert trace.anchor_kind == "none"
        assert trace.anchors == ()
        assert trace.alignment_after is None


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("1. Italy\n2. France\n3) Italy\n", ("Italy",)),
        ("- Vatican City (a state)\n* San Marino: small\n", ("Vatican City", "San Marino")),
        ("Sure: Italy, Spain and Malta", ("Italy", "Spain", "Malta")),
        ('"Italy"\nRome\n', ("Italy",)),
        ("This is a very long sentence which names nobody at all\n\n!!!", ()),
        ("", ()),
    ],
)
def test_names_in_a_list(answer: str, names: tuple[str, ...]) -> None:
    assert listed(answer, ("France", "Rome")) == names


def test_elicited_references_are_of_the_edit(loaded: LoadedModel) -> None:
    for reference in elicited_references(loaded.model, loaded.tokenizer, EDIT):
        assert reference.object == "Rome"
        assert reference.statement == "The capital of {} is"
        assert reference.subject not in ("France", "Rome")
