"""Keys of prompts: what the edited down projection sees at the subject's last tokens. Layers above are not run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from steam_engine.architecture import Architecture
from steam_engine.hooks import captured, stopping_after
from steam_engine.packing import groups, pack
from steam_engine.tokens import Row


@torch.no_grad()
def subject_keys(arch: Architecture, layer: int, rows: Sequence[Row]) -> torch.Tensor:
    """Keys [n_subjects, d_ff] in fp32 at every marked subject position of `rows`, in order.

    Tokens after a row's last subject do not influence them and are cut off.
    """
    down = arch.down_projection(layer)
    cut = [Row(row.ids[: row.subjects[-1] + 1], row.subjects) for row in rows]
    found = [torch.zeros(0, arch.d_ff, device=arch.device_of(layer))]
    for group in groups(cut):
        batch = pack(arch, [row.ids for row in group])
        with captured(inputs={"key": down}) as seen, stopping_after(down):
            arch.base(**batch.inputs, use_cache=False)
        at = [start + p for start, row in zip(batch.start, group, strict=True) for p in row.subjects]
        found.append(seen["key"][0, at].float())
    return torch.cat(found)


class NeighbourKeys:
    """Keys of the subjects that an edit must not move, remembered from edit to edit.

    The keys of a layer depend on the layers below it alone, so edits of this layer do not change them; where those
    further down are others, `stand_on` is told.
    """

    def __init__(self, arch: Architecture, layer: int) -> None:
        self._arch, self._layer = arch, layer
        self._known: dict[Row, torch.Tensor] = {}
        self._below: tuple[object, ...] = ()

    def stand_on(self, below: Sequence[object]) -> None:
        """What is in the weights of the layers below, in order; keys that were read above anything else are forgotten.

        Args:
            below: the changes themselves, told apart by identity.
        """
        if len(below) != len(self._below) or any(new is not old for new, old in zip(below, self._below, strict=True)):
            self._known.clear()
        self._below = tuple(below)

    def of(self, rows: Sequence[Row]) -> torch.Tensor:
        """Keys [n_subjects, d_ff] in fp32, as `subject_keys` gives them; only unknown rows are run."""
        new = [row for row in rows if row not in self._known]
        if new:
            keys = subject_keys(self._arch, self._layer, new)
            for row, own in zip(new, torch.split(keys, [len(row.subjects) for row in new]), strict=True):
                self._known[row] = own.clone()
        none = torch.zeros(0, self._arch.d_ff, device=self._arch.device_of(self._layer))
        return torch.cat([none, *(self._known[row] for row in rows)])
