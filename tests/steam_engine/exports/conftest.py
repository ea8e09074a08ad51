"""Editors whose base model is on the disk, as the readers need it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steam_engine.editor import Editor
from steam_engine.loading import load_model
from steam_engine.settings import EditSettings
from tests.steam_engine.conftest import SETTINGS, taught_model

StoredEditor = Callable[..., Editor]


@pytest.fixture(scope="session")
def stored_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family -> directory of a tiny model that knows a few capitals; written once a test run."""
    root = tmp_path_factory.mktemp("stored")

    def directory(family: str) -> Path:
        path = root / family
        if not path.exists():
            loaded = taught_model(family)
            loaded.model.save_pretrained(path)
            loaded.tokenizer.save_pretrained(path)
        return path

    return directory


@pytest.fixture
def stored_editor(tmp_path: Path, moments_cache: Path, stored_models: Callable[[str], Path]) -> StoredEditor:
    def make(family: str = "llama", dtype: str = "auto", settings: EditSettings = SETTINGS) -> Editor:
        loaded = load_model(str(stored_models(family)), device="cpu", dtype=dtype)
        return Editor(loaded, tmp_path / "journal", moments_cache, settings)

    return make
