"""Editors whose base model is on the disk, as the readers need it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from steam_engine.editor import Editor
from steam_engine.exports.model import EditedModel, edited_model
from steam_engine.journal import EditTensors, LayerTensors
from steam_engine.loading import load_model
from steam_engine.settings import EditSettings
from steam_engine.weights import EditedWeights
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model

StoredEditor = Callable[..., Editor]


@pytest.fixture(scope="session")
def stored_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family -> directory of a tiny model that knows a few capitals; written once a test run."""
    root = tmp_path_factory.mktemp("stored")

    def directory(family: str) -> Path:
        path = root / family
        if not path.exists():
            loaded = taught_model(family)
            loaded.tokenizer.save_pretrained(path)
            loaded.model.config.save_pretrained(path)
            again = AutoTokenizer.from_pretrained(path)  # Qwen2's has tokens of its own
            if len(again) > loaded.model.config.vocab_size:
                loaded.model.resize_token_embeddings(len(again), mean_resizing=False)
            loaded.model.save_pretrained(path)
        return path

    return directory


@pytest.fixture
def stored_editor(tmp_path: Path, moments_cache: Path, stored_models: Callable[[str], Path]) -> StoredEditor:
    def make(family: str = "llama", dtype: str = "auto", settings: EditSettings = SETTINGS) -> Editor:
        loaded = load_model(str(stored_models(family)), device="cpu", dtype=dtype)
        return Editor(loaded, tmp_path / "journal", moments_cache, settings)

    return make


def in_two_layers(editor: Editor) -> EditedModel:
    """Two edits in layer 0 as they were made, and one more in layer 2, which is installed by hand."""
    editor.apply(capital(), quiet)
    editor.apply(capital("Norway", "Vienna"), quiet)
    model = edited_model(editor)
    first = model.tensors[0].layers[0]
    second = LayerTensors(2, first.left.flip(0).contiguous(), first.right.flip(0).contiguous(), first.keys)
    tensors = (EditTensors((first, second)), *model.tensors[1:])
    weights = EditedWeights(editor.loaded.arch)
    weights.install(weights.compose({2: [second.pair]}))
    return EditedModel(model.loaded, model.entries, tensors)
