"""Every method changes what it should, and leaves the weights bit-identical when its session ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from steam_engine.errors import EditCancelledError, UnknownMethodError
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Method
from steam_engine.methods.changes import changing
from steam_engine.methods.ft import NORM_CONSTRAINT
from steam_engine.methods.full_forward import LoopSettings, learn_vector, statement_rows
from steam_engine.methods.memit import Memit, hidden_states
from steam_engine.methods.names import NAMES
from steam_engine.methods.registry import method
from steam_engine.methods.rome import Rome, keys_and_outputs
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model

WEIGHT_METHODS = tuple(name for name in NAMES if name != "told")


def weights(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in loaded.model.named_parameters()}


def changed(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in a if not torch.equal(a[name], b[name])]


@pytest.fixture
def make(moments_cache: Path) -> Callable[..., Method]:
    loop = LoopSettings(learning_rate=0.1, decay_weight=0, clamp=1000)

    def make(name: str, loaded: LoadedModel) -> Method:
        made: Any = method(name, loaded, moments_cache, quiet, threading.Event(), SETTINGS)
        if isinstance(made, Rome):
            made = replace(made, layer=0, settings=loop, moment_tokens=SETTINGS.moment_tokens)
        if isinstance(made, Memit):
            made = replace(made, layers=(0, 1), settings=loop, moment_tokens=SETTINGS.moment_tokens)
        return made

    return make


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("name", WEIGHT_METHODS)
def test_a_session_leaves_nothing_behind(make: Callable[..., Method], name: str, family: str) -> None:
    loaded = taught_model(family)
    base = weights(loaded)
    with make(name, loaded).session() as session:
        (one,) = session.apply([capital()], quiet, threading.Event())
        assert one.error is None
        assert one.steps > 0
        assert one.seconds > 0
        once = weights(loaded)
        assert len(changed(base, once)) == (2 if name == "memit" else 1)
        assert all("mlp" in which for which in changed(base, once))
        outcomes = session.apply([capital("Spain", "Oslo"), capital("Poland", "Paris")], quiet, threading.Event())
        assert [o.edit.subject for o in outcomes] == ["Spain", "Poland"]
        assert changed(once, weights(loaded))
        assert session.prompt("Why?") == "Why?"
    assert changed(base, weights(loaded)) == []
    assert not any(p.requires_grad for p in loaded.model.parameters())


@pytest.mark.parametrize("name", WEIGHT_METHODS)
def test_a_cancelled_call_changes_nothing(make: Callable[..., Method], name: str) -> None:
    loaded = taught_model("llama")
    with make(name, loaded).session() as session:
        session.apply([capital("Spain", "Oslo")], quiet, threading.Event())
        before, cancel = weights(loaded), threading.Event()
        cancel.set()
        with pytest.raises(EditCancelledError):
            session.apply([capital()], quiet, cancel)
        assert changed(before, weights(loaded)) == []


def test_an_exception_ends_a_session_cleanly(make: Callable[..., Method]) -> None:
    loaded = taught_model("llama")
    base = weights(loaded)

    def explode(name: str) -> None:
        with make(name, loaded).session() as session:
            session.apply([capital()], quiet, threading.Event())
            raise RuntimeError("the page went away")

    for name in WEIGHT_METHODS:
        with pytest.raises(RuntimeError, match="went away"):
            explode(name)
        assert changed(base, weights(loaded)) == []


@pytest.mark.parametrize("name", ["steam", "rome", "ft"])
def test_the_object_becomes_likelier(make: Callable[..., Method], name: str) -> None:
    loaded = taught_model("llama")
    (row,) = statement_rows(loaded, capital(), ())

    def nll() -> float:
        with torch.no_grad():
            logits = loaded.model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
        return -sum(float(logits[p - 1, row.ids[p]]) for p in row.target)

    before = nll()
    with make(name, loaded).session() as session:
        session.apply([capital()], quiet, threading.Event())
        assert nll() < before - 0.005  # fine-tuning may move every entry by 5e-4 only


def test_rome_inserts_the_value_exactly(make: Callable[..., Method]) -> None:
    """W' k = v* for the key of the bare statement (ROME, eq. 2)."""
    loaded = taught_model("llama")
    rows = statement_rows(loaded, capital(), ())
    with make("rome", loaded).session() as session:
        learned = learn_vector(
            loaded, capital(), session.contexts, loaded.arch.down_projection(0), session.settings, quiet,
            threading.Event(),
        )  # fmt: skip
        session.apply([capital()], quiet, threading.Event())
        _, outputs = keys_and_outputs(loaded, 0, rows)
        assert torch.allclose(outputs[0], learned.initial + learned.delta, atol=1e-3)


def test_memit_comes_nearer_to_the_wanted_state_with_every_layer(make: Callable[..., Method]) -> None:
    loaded = taught_model("llama")
    rows = statement_rows(loaded, capital(), ())
    with make("memit", loaded).session() as session:
        learned = learn_vector(
            loaded, capital(), session.contexts, loaded.arch.layers[1], session.settings, quiet, threading.Event()
        )
        wanted = learned.initial + learned.delta
        session.apply([capital()], quiet, threading.Event())
        changes = session.changes.saved()
        left = [float((wanted - hidden_states(loaded, 1, rows)[0]).norm())]
        session.changes.restore({0: changes[0]})
        left.append(float((wanted - hidden_states(loaded, 1, rows)[0]).norm()))
    assert left[0] < left[1] < float(learned.delta.norm())
    assert all(torch.linalg.matrix_rank(change) == 1 for change in changes.values())


def test_fine_tuning_stays_within_its_bound(make: Callable[..., Method]) -> None:
    loaded = taught_model("llama")
    base = weights(loaded)
    with make("ft", loaded).session() as session:
        session.apply([capital()], quiet, threading.Event())
        now = weights(loaded)
    (name,) = changed(base, now)
    assert float((now[name] - base[name]).abs().max()) <= NORM_CONSTRAINT * 1.001


def test_told_puts_the_facts_before_the_question(make: Callable[..., Method]) -> None:
    loaded = taught_model("llama")
    base = weights(loaded)
    with make("told", loaded).session() as session:
        assert session.prompt("Why?") == "Why?"
        session.apply([capital(), capital("Spain", "Oslo")], quiet, threading.Event())
        session.apply([capital(target="Paris")], quiet, threading.Event())
        assert session.prompt("Why?") == (
            "Fact: The capital of France is Paris. The capital of Spain is Oslo. Assume that this is true.\nWhy?"
        )
    assert changed(base, weights(loaded)) == []


def test_an_edit_that_cannot_be_made_is_an_outcome(make: Callable[..., Method]) -> None:
    lost = replace(capital(), statements=("The capital of nothing is",), questions=())
    for name in WEIGHT_METHODS:
        loaded = taught_model("llama")
        with make(name, loaded).session() as session:
            bad, good = session.apply([lost, capital("Spain", "Oslo")], quiet, threading.Event())
            assert bad.error
            assert good.error is None


def test_unknown_methods_are_named(make: Callable[..., Method]) -> None:
    with pytest.raises(UnknownMethodError, match="no editing method 'mend'; there are steam, rome"):
        method("mend", taught_model("llama"), Path("unused"), quiet, threading.Event())


def test_changes_add_up_and_go_back() -> None:
    loaded = taught_model("gpt2")
    base = weights(loaded)
    with changing(loaded.arch) as changes:
        step = torch.ones(loaded.arch.d_model, loaded.arch.d_ff)
        changes.add(1, step)
        saved = changes.saved()
        once = weights(loaded)
        changes.add(1, step)
        changes.add(2, step)
        assert len(changed(base, weights(loaded))) == 2
        changes.restore(saved)
        assert changed(once, weights(loaded)) == []
    assert changed(base, weights(loaded)) == []
