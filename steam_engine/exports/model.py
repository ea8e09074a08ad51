"""What is exported: the model in memory, and the active edits that made it differ from its base."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steam_engine.editor import Editor
from steam_engine.errors import ExportError
from steam_engine.journal import EditTensors, pairs_by_layer
from steam_engine.loading import LoadedModel, StoredModel
from steam_engine.placement import weight_of
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

    @property
    def base(self) -> StoredModel:
        """Where a reader finds the unedited model. Raises ExportError where it is only in memory."""
        if self.loaded.stored is None:
            raise ExportError("The base model is not on the disk, so an export without it could not be checked.")
        return self.loaded.stored

    def live(self, layer: int) -> torch.Tensor:
        """The edited matrix of a layer as it is in the model."""
        return weight_of(self.loaded.arch.down_projection(layer))


def edited_model(editor: Editor) -> EditedModel:
    """The editor's model as it is now."""
    return EditedModel(editor.loaded, editor.active, editor.journal.tensors(editor.active))
