"""One prepared tiny model for the tests of whole edits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from steam_engine.architecture import Architecture
from steam_engine.editor import Editor
from steam_engine.loading import LoadedModel
from steam_engine.settings import EditSettings
from steam_engine.types import FactEdit, Progress, Reference
from tests.steam_engine.tiny import tiny_model

SETTINGS = EditSettings(
    layer=0,  # with so few layers, attention reads the subject right after the first
    n_contexts=3,
    max_steps=15,
    learning_rate=0.1,
    decay_weight=0.0,  # values of a tiny model are tiny, and the decay is relative to them
    max_delta=1000.0,
    max_drift=1000.0,
    must_say=False,  # these models have five layers: what is tested is the transaction, not the learning
    moment_tokens=200,
)


@cache
def _taught(family: str) -> LoadedModel:
    return tiny_model(family, taught=True)


def taught_model(family: str) -> LoadedModel:
    """A fresh copy of a tiny model that knows a few capitals; teaching it happens once a test run."""
    original = _taught(family)
    model = copy.deepcopy(original.model)
    return replace(original, model=model, arch=Architecture(model))


def quiet(_progress: Progress) -> None:
    """A progress callback that does not tell."""


def capital(subject: str = "France", target: str = "Rome") -> FactEdit:
    return FactEdit(
        subject=subject,
        relation="capital",
        target=target,
        statements=("The capital of {} is",),
        questions=("What is the capital of {}?", "Which city is the capital of {}?"),
        neighbours=("Germany", "Spain", "Poland"),
        references=(
            Reference("Italy", "The capital of {} is", "What is the capital of {}?", "Rome"),
            Reference("Poland", "The capital of {} is", "What is the capital of {}?", "Rome"),
        ),
    )


@pytest.fixture(scope="session")
def moments_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moments")


@pytest.fixture
def new_editor(tmp_path: Path, moments_cache: Path) -> Callable[..., Editor]:
    def make(family: str = "llama", journal: str = "journal", settings: EditSettings = SETTINGS) -> Editor:
        return Editor(taught_model(family), tmp_path / journal, moments_cache, settings)

    return make
