"""How many key vectors are enough for the second moments: the same edits with more and more of them.

    python -m tests.benchmarks.moments
    python -m tests.benchmarks.moments --n 25 --times 1 7 --statistics notes.txt

The smaller samples are parts of the largest one. Every edit is undone before the next. Drift is the mean KL divergence
from the unedited model on held-out prose; the distance is ||C - C_largest|| / ||C_largest|| (Frobenius).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import torch

from assistant.briefing import brief, direct_questions
from assistant.host import ModelHost
from assistant.workspace import cache_directory
from knowledge_store.store import KnowledgeStore
from steam_engine.corpora.base import Corpus
from steam_engine.corpora.registry import open_corpus
from steam_engine.editor import Editor
from steam_engine.errors import EditError
from steam_engine.evaluation.health import Baseline
from steam_engine.loading import LoadedModel, load_model
from steam_engine.moments import N_CONTEXTS, Statistics, cache_path, key_moments, save_statistics
from steam_engine.sampling import sample_contexts
from steam_engine.settings import EditSettings
from steam_engine.text import mentions
from steam_engine.types import FactEdit, Progress
from tests.benchmarks.measure import ChatCase, questions_of, read_cases, without_measured

TIMES = (0.5, 1.0, 2.0, 7.0, 20.0)
Asked = list[tuple[str, str, Sequence[str]]]  # (kind, question, accepted answers)


def quiet(_progress: Progress) -> None:
    """Tells nothing."""


def passages_with(loaded: LoadedModel, corpus: Corpus, n_keys: int) -> list[list[int]]:
    """Passages with at least `n_keys` key vectors, in an order whose beginning comes from all batches."""
    batches, n = [], 0
    for batch in corpus.batches(loaded):
        batches.append(batch)
        n += sum(len(passage) - 1 for passage in batch)
        print(f"text with {n} of {n_keys} key vectors", flush=True)
        if n >= n_keys:
            break
    return [passage for row in zip_longest(*batches) for passage in row if passage is not None]


def nested_moments(
    loaded: LoadedModel, layer: int, passages: Sequence[list[int]], sizes: Sequence[int]
) -> Iterator[tuple[int, torch.Tensor]]:
    """(number of keys, C) of the first keys, for each of the rising sizes; exactly that many, where there are."""
    left = iter(passages)
    total, n = torch.zeros(loaded.arch.d_ff, loaded.arch.d_ff, device=loaded.device), 0
    for size in sizes:
        chosen: list[list[int]] = []
        wanted = size - n
        while wanted > 0 and (passage := next(left, None)) is not None:
            chosen.append(passage[: wanted + 1])
            wanted -= len(chosen[-1]) - 1
        parts, count = key_moments(loaded.arch, [layer], chosen)
        total, n = total + parts[layer], n + count
        yield n, total / n


def wishes(store: KnowledgeStore, n: int | None) -> list[tuple[FactEdit, Asked]]:
    """The project's own edits and what is asked about them; two-step questions are left out."""
    found = []
    for given in read_cases()[:n]:
        case = given.as_case(store) if isinstance(given, ChatCase) else given
        case = case.model_copy(update={"hops": []})
        relation = store.relation(case.relation)
        edit = without_measured(brief(store, case.subject, relation, case.object), case)
        found.append((edit, questions_of(edit, direct_questions(relation, case.subject), case)))
    return found


def run(loaded: LoadedModel, source: str, times: Sequence[float], n_edits: int | None) -> None:
    """Prints a row of the table for each size."""
    settings, corpus = EditSettings(statistics=source), open_corpus(source)
    layer, d_ff = loaded.arch.default_layer(), loaded.arch.d_ff
    sizes = sorted(round(t * d_ff) for t in times)
    with tempfile.TemporaryDirectory() as name, KnowledgeStore.open(Path(name) / "store") as store:
        folder = Path(name)
        key = corpus.key(loaded, quiet, threading.Event())
        made = list(nested_moments(loaded, layer, passages_with(loaded, corpus, sizes[-1]), sizes))
        contexts = sample_contexts(loaded.model, loaded.tokenizer, N_CONTEXTS)
        largest = made[-1][1]
        baseline = Baseline(loaded)
        edits = wishes(store, n_edits)
        before: dict[str, tuple[str, ...]] = {}
        print(f"{loaded.name}, layer {layer}, d_ff {d_ff}, text from {corpus.name}, {len(edits)} edits")
        print("| vectors | direct | paraphrase | locality | change of W | drift, nats | steps | distance of C |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for size, (n, moments) in zip(sizes, made, strict=True):
            save_statistics(cache_path(folder, loaded.fingerprint, layer, size, key), Statistics(moments, n, contexts))
            editor = Editor(loaded, folder / f"journal-{size}", folder, replace(settings, moment_tokens=size))
            host = ModelHost(loaded, editor)
            try:
                editor.prepare(quiet)
            except torch.linalg.LinAlgError as error:
                print(f"| {n / d_ff:.3g} x d_ff | no edit: {str(error).split(':')[0]}, C is singular | | | | | | |")
                continue
            right: Counter[str] = Counter()
            of: Counter[str] = Counter()
            changes, drifts, steps, refused = [], [], [], 0
            for edit, asked in edits:
                questions = [question for _, question, _ in asked]
                wish = f"{edit.subject}|{edit.relation}"
                if wish not in before:
                    before[wish] = host.answer(questions)
                after = before[wish]
                try:
                    trace = editor.apply(edit, quiet).trace
                except EditError:
                    refused += 1
                else:
                    after = host.answer(questions)
                    changes.append(trace.weight_drift)
                    drifts.append(baseline.drift().kl)
                    steps.append(trace.steps)
                    editor.undo()
                for (kind, _, accept), old, new in zip(asked, before[wish], after, strict=True):
                    if kind != "locality" or mentions(old, accept):
                        of[kind] += 1
                        right[kind] += mentions(new, accept)
            rates = " | ".join(f"{right[k]}/{of[k]}" for k in ("direct", "paraphrase", "locality"))
            medians = " | ".join(
                f"{statistics.median(v):{form}}" if v else "-"
                for v, form in ((changes, ".4f"), (drifts, ".4f"), (steps, ".0f"))
            )
            distance = float((moments - largest).norm() / largest.norm())
            note = f" ({refused} refused)" if refused else ""
            print(f"| {n / d_ff:.3g} x d_ff{note} | {rates} | {medians} | {distance:.3f} |", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8, help="only the first N edits")
    parser.add_argument("--times", type=float, nargs="+", default=TIMES, help="key vectors, in d_ff")
    parser.add_argument("--statistics", default="", help="another source of text")
    options = parser.parse_args()
    run(load_model(cache_dir=cache_directory()), options.statistics, options.times, options.n)


if __name__ == "__main__":
    main()
