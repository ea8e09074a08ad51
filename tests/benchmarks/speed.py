"""Seconds of an edit against the published ROME loop and against the bare passes that it cannot do without.

    python -m tests.benchmarks.speed            one run, all ratios, medians over the first edits of edits.jsonl
    python -m tests.benchmarks.speed --batch 100

Ratios are of one run on one machine: seconds alone say little.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from assistant.briefing import brief
from assistant.workspace import cache_directory
from knowledge_store.store import KnowledgeStore
from steam_engine.editor import Editor
from steam_engine.errors import EditError
from steam_engine.hooks import bypassed
from steam_engine.loading import LoadedModel, load_model
from steam_engine.methods.registry import method
from steam_engine.prompts import build_prompts
from steam_engine.suffix import Prefill
from steam_engine.types import FactEdit, Progress
from tests.benchmarks.measure import read_cases


@dataclass
class _Clock:
    """Times the steps of an optimisation by its progress."""

    stamps: list[float]

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "Finding the new value":
            self.stamps.append(time.perf_counter())

    def step(self) -> float:
        """Median seconds of a step."""
        return statistics.median(b - a for a, b in zip(self.stamps, self.stamps[1:], strict=False))


def quiet(_progress: Progress) -> None:
    """Tells nothing."""


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def bare_passes(editor: Editor, edit: FactEdit, contexts: tuple[str, ...], n: int = 7) -> float:
    """Median seconds of a forward and backward pass of a step's tokens through the layers above the edit: no cache,
    no loss terms, no logits."""
    loaded, layer = editor.loaded, editor.layer
    prompts = build_prompts(loaded.tokenizer, edit, contexts)
    prefill = Prefill(loaded.arch, layer, prompts.rows)
    share = prompts.batches(editor.settings.n_batches)[0]
    tokens = sum(prompts.rows[r].n_inputs - prompts.rows[r].subjects[0] for r in share)
    hidden = torch.randn(1, tokens, loaded.arch.d_model, device=loaded.device, dtype=loaded.dtype)
    skipped = list(loaded.arch.layers)[: layer + 1]

    def passes() -> None:
        start = hidden.clone().requires_grad_(True)
        with bypassed(skipped, (start,) if prefill.tuple_output else start):
            out = loaded.arch.base(inputs_embeds=start, use_cache=False)[0]
        out.float().pow(2).mean().backward()

    passes()
    return statistics.median(timed(passes) for _ in range(n))


def one_by_one(loaded: LoadedModel, edits: list[FactEdit], rome: bool) -> None:
    """STEAM's seconds an edit and a step; ROME's; the bare passes."""
    cancel, cache = threading.Event(), cache_directory()
    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(loaded, Path(folder), cache)
        editor.prepare(quiet)
        editor.apply(edits[0], quiet)  # warm
        editor.undo()
        seconds, steps, passes = [], [], []
        for edit in edits:
            clock = _Clock([])
            seconds.append(timed(lambda edit=edit, clock=clock: editor.apply(edit, clock)))  # type: ignore[misc]
            editor.undo()
            steps.append(clock.step())
            passes.append(bare_passes(editor, edit, editor.contexts))
    edit_time, step, bare = (statistics.median(x) for x in (seconds, steps, passes))
    print(f"STEAM: {edit_time:.2f} s an edit, {step:.3f} s a step (medians of {len(edits)} edits)")
    print(f"bare forward and backward of a step's tokens above the edit: {bare:.3f} s; a step is {step / bare:.2f} x")
    if rome:
        with method("rome", loaded, cache, quiet, cancel).session() as session:
            found = [timed(lambda edit=edit: session.apply([edit], quiet, cancel)) for edit in edits[:3]]  # type: ignore[misc]
        published = statistics.median(found)
        print(f"ROME as published: {published:.2f} s an edit; STEAM takes {edit_time / published:.2f} of it")


def batch(loaded: LoadedModel, edits: list[FactEdit], singles: int) -> None:
    """A batch against single edits, estimated from the first few."""
    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(loaded, Path(folder), cache_directory())
        editor.prepare(quiet)
        editor.apply(edits[0], quiet)
        editor.undo()
        begun = time.perf_counter()
        results = editor.apply_batch(edits, quiet)
        together = time.perf_counter() - begun
        refused = sum(isinstance(r, EditError) for r in results)
        for entry in reversed(editor.active):
            editor.undo(entry.number)
        alone = []
        for edit in edits[:singles]:
            begun = time.perf_counter()
            try:
                editor.apply(edit, quiet)
                editor.undo()
            except EditError:
                pass
            alone.append(time.perf_counter() - begun)
    expected = statistics.mean(alone) * len(edits)
    print(
        f"{len(edits)} edits at once: {together:.1f} s, {refused} refused; one by one about {expected:.1f} s "
        f"(from {len(alone)}): {together / expected:.2f} x"
    )


def made_up(store: KnowledgeStore, n: int) -> list[FactEdit]:
    """Countries with the capitals of other countries, in a fixed order."""
    relation = store.relation("capital")
    facts = sorted((f.subject, f.object) for f in store.facts(relation="capital") if f.subject.isascii())
    step = len(facts) // 3
    chosen = [(subject, facts[(i + step) % len(facts)][1]) for i, (subject, _) in enumerate(facts)]
    return [brief(store, subject, relation, object) for subject, object in chosen[:: max(1, len(chosen) // n)][:n]]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=9, help="edits to time")
    parser.add_argument("--batch", type=int, default=None, help="time a batch of this many edits instead")
    parser.add_argument("--no-rome", action="store_true")
    options = parser.parse_args()
    loaded = load_model(cache_dir=cache_directory())
    print(f"{loaded.name} on {loaded.device}, {torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as folder, KnowledgeStore.open(Path(folder)) as store:
        if options.batch:
            batch(loaded, made_up(store, options.batch), min(12, options.batch))
        else:
            cases = [c.as_case(store) if hasattr(c, "as_case") else c for c in read_cases()[: options.n]]
            edits = [brief(store, c.subject, store.relation(c.relation), c.object) for c in cases]
            one_by_one(loaded, edits, rome=not options.no_rome)


if __name__ == "__main__":
    main()
