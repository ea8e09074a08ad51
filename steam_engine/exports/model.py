"""What is exported: the model in memory, and the active edits that made it differ from its base."""

from __future__ import annotations

from dataclasses import dataclass

from steam_engine.editor import Editor
from steam_engine.journal import EditTensors, pairs_by_layer
from steam_engine.loading import LoadedModel
from steam_engine.types import JournalEntry
from steam_engine.weights import FactorPair


@dataclass(frozen=True)
class EditedModel:
    """A model whose weights are its base's plus the factor pairs of `tensors`."""

    loaded: LoadedModel
    entries: tuple[JournalEntry, ...]  # the active ones, in order
    tensors: tuple[EditTensors, ...]  # of the same edits

    @property
    def pairs(self) -> dict[int, list[FactorPair]]:
        """Layer -> factor pairs, in the order in which they are added."""
        return pairs_by_layer(self.tensors)


def edited_model(editor: Editor) -> EditedModel:
    """The editor's model as it is now."""
    return EditedModel(editor.loaded, editor.active, editor.journal.tensors(editor.active))
