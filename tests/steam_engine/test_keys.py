"""Keys of neighbours are read once, and again only where edits of the layers below made them others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from steam_engine import keys
from steam_engine.editor import Editor
from steam_engine.keys import subject_keys
from steam_engine.prompts import neighbour_rows
from steam_engine.tokens import Row
from tests.steam_engine.conftest import SETTINGS, capital, quiet

NewEditor = Callable[..., Editor]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that were run for neighbours' keys."""
    rows: list[Row] = []

    def noting(arch: object, layer: int, new: Sequence[Row]) -> torch.Tensor:
        rows.extend(new)
        return subject_keys(arch, layer, new)

    monkeypatch.setattr(keys, "subject_keys", noting)
    return rows


def test_edits_and_undo_of_the_layer_itself_keep_them(new_editor: NewEditor, read: list[Row]) -> None:
    editor = new_editor()
    editor.apply(capital(), quiet)
    once = list(read)
    assert once
    editor.undo()
    editor.redo()
    editor.apply(capital("Italy", "Paris"), quiet)
    editor.undo()
    editor.apply(capital(target="Berlin"), quiet)
    assert read == once


def test_edits_of_a_layer_below_make_them_others(new_editor: NewEditor, read: list[Row]) -> None:
    new_editor().apply(capital("Spain", "Oslo"), quiet)
    editor = new_editor(settings=replace(SETTINGS, layer=1))
    editor.apply(capital(), quiet)
    rows = neighbour_rows(editor.loaded.tokenizer, capital(), editor.contexts)

    def right() -> bool:
        return torch.equal(editor._neighbours.of(rows), subject_keys(editor.loaded.arch, 1, rows))

    assert right()
    with_both = editor._neighbours.of(rows)
    n_read = len(read)
    editor.undo(2)
    assert right()
    assert len(read) == n_read
    editor.undo(1)
    assert right()
    assert not torch.allclose(editor._neighbours.of(rows), with_both)
    assert len(read) > n_read
