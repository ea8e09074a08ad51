"""From wishes to deltas: prompts, anchors and the optimisation, for one edit or many, on the weights as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from steam_engine.anchors import Anchors, alignment_layers, find_anchors
from steam_engine.errors import EditError
from steam_engine.loading import LoadedModel
from steam_engine.objective import LossTerms
from steam_engine.optimise import Optimised, Task, optimise_deltas
from steam_engine.prompts import PromptSet, build_prompts
from steam_engine.settings import EditSettings
from steam_engine.suffix import Prefill
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback

FINDING = "Finding the new value"


@dataclass(frozen=True)
class Wish:
    """An edit to be learnt, with what it has to respect."""

    edit: FactEdit
    kept: tuple[FactEdit, ...] = ()  # earlier edits of the same subject, which must stay said
    start: torch.Tensor | None = None  # a delta to start from, [d_model]


@dataclass(frozen=True)
class Learned:
    """A delta for an edit, with all that the solve and the checks need."""

    edit: FactEdit
    prompts: PromptSet
    keys: torch.Tensor  # [n_keys, d_ff], fp32, of the edit's own statements and chats
    anchors: Anchors | None
    found: Optimised


def learn(
    loaded: LoadedModel,
    layer: int,
    wishes: Sequence[Wish],
    contexts: tuple[str, ...],
    settings: EditSettings,
    progress: ProgressCallback,
    cancel: CancelToken,
) -> tuple[Learned | EditError, ...]:
    """A delta for every wish, or why there is none.

    Args:
        loaded: the model; its weights stay as they are.
        layer: the edited layer.
        wishes: edits of different subjects.
        contexts: sentence openings for the prompts.
        settings: of all edits.
        progress: told about every step of one edit, or about every finished edit of many.
        cancel: set to stop.

    Raises:
        EditCancelledError: `cancel` was set.
    """
    prepared: dict[int, Task] = {}
    failed: dict[int, EditError] = {}
    numbers: list[int] = []  # the wish of each task
    many = len(wishes) > 1

    def tasks() -> Iterator[Task]:
        for number, wish in enumerate(wishes):
            if not many:
                progress(Progress("Reading the subject", 0, 1))
            try:
                prompts = _prompts(loaded, wish, contexts, settings)
            except EditError as error:
                failed[number] = error
                continue
            prefill = Prefill(loaded.arch, layer, prompts.rows)
            if not many:
                progress(Progress("Looking for semantic anchors", 0, 1))
            layers = alignment_layers(loaded.arch.n_layers, layer)
            anchors = find_anchors(
                loaded.arch, loaded.tokenizer, wish.edit, layers, contexts, settings.anchors, settings.align_at_prompt
            )
            prepared[number] = task = Task(prompts, prefill, anchors, wish.start)
            numbers.append(number)
            yield task

    finished = 0

    def step(_number: int, i: int, terms: LossTerms) -> None:
        if many:
            progress(Progress(FINDING, finished, len(wishes), "edits"))
        else:
            progress(Progress(FINDING, i, settings.max_steps, f"loss {terms.total:.2f}"))

    learned: dict[int, Learned] = {}
    for order, result in optimise_deltas(tasks(), settings, step, cancel):
        number = numbers[order]
        task = prepared.pop(number)  # a prefilled cache is megabytes: let it go
        finished += 1
        if many:
            progress(Progress(FINDING, finished, len(wishes), "edits"))
        if isinstance(result, EditError):
            failed[number] = result
            continue
        n_own = sum(len(row.subjects) for row in task.prompts.own)
        learned[number] = Learned(
            wishes[number].edit, task.prompts, task.prefill.keys[:n_own].float(), task.anchors, result
        )
    by_number: Mapping[int, Learned | EditError] = {**learned, **failed}
    return tuple(by_number[number] for number in range(len(wishes)))


def _prompts(loaded: LoadedModel, wish: Wish, contexts: tuple[str, ...], settings: EditSettings) -> PromptSet:
    edit = replace(wish.edit, hop_examples=wish.edit.hop_examples[: settings.n_hops])
    return build_prompts(loaded.tokenizer, edit, contexts, wish.kept)
