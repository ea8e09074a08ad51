"""Cases a minute on one worker and on as many as there are, with the default model.

    python -m tests.benchmarks.spread                  a Ray cluster of its own on this machine
    python -m tests.benchmarks.spread --ray auto       the cluster that runs here, or the one at host:port

The first two cases warm a worker up; the clock runs over the others, three times, one and many workers by turns.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import threading
import time
from pathlib import Path

from assistant.evaluating import store_wish
from assistant.workspace import cache_directory
from knowledge_store.store import KnowledgeStore
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question
from steam_engine.evaluation.cluster import connected
from steam_engine.evaluation.results import Results
from steam_engine.evaluation.spread import Spread
from steam_engine.evaluation.worker import worker_model
from steam_engine.loading import load_model
from steam_engine.settings import EditSettings
from steam_engine.types import FactEdit, Progress

CAPITALS = {
    "Egypt": "Athens", "Canada": "Berlin", "Poland": "Tokyo", "Greece": "Madrid", "Peru": "Vienna",
    "Chile": "Rome", "Kenya": "Lisbon", "Norway": "Paris",
}  # fmt: skip
WARM = 2
RUNS = 3


def cases() -> list[EvalCase]:
    """Edits of capitals with two questions of every kind but hops."""
    found = []
    for number, (subject, target) in enumerate(CAPITALS.items(), start=1):
        edit = CaseEdit(subject, "The capital of {} is", target, ("What is the capital of {}?",))
        questions = (
            Question("direct", f"What is the capital of {subject}?", (target,)),
            Question("paraphrase", f"Tell me the capital city of {subject}.", (target,)),
            Question("paraphrase", f"{subject}'s capital is which city?", (target,)),
            Question("locality", "What is the capital of Germany?", ("Berlin",)),
            Question("locality", "What is the capital of Japan?", ("Tokyo",)),
        )
        found.append(EvalCase(number, (edit,), questions))
    return found


def quiet(_progress: Progress) -> None:
    """Tells nothing."""


def main() -> None:
    """Prints medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", default="local")
    address = parser.parse_args().ray
    chosen = cases()
    with (
        connected(address) as cluster,
        tempfile.TemporaryDirectory() as folder,
        KnowledgeStore.open(Path(folder)) as store,
    ):
        loaded = load_model(device="cpu", cache_dir=cache_directory())
        device = cluster.device("auto")
        model = worker_model(loaded, device, cache_directory(), "each", EditSettings())
        places = cluster.places(device, loaded.n_bytes)

        def wish(edit: CaseEdit, case: EvalCase) -> FactEdit:
            return store_wish(store, edit, case)

        rates: dict[int, list[float]] = {1: [], len(places): []}
        edits: dict[int, list[float]] = {n: [] for n in rates}
        for _ in range(RUNS):
            for n in rates:
                results = Results()
                # Every worker has a process and the model before the clock starts, which takes several seconds.
                with Spread(places[:n], model, quiet, print, threading.Event()) as spread:
                    for _ in range(n):
                        spread.run("steam", chosen[:WARM], "each", 1, wish, Results())
                    begun = time.perf_counter()
                    spread.run("steam", chosen[WARM:], "each", 1, wish, results)
                    rates[n].append(60 * len(results.results) / (time.perf_counter() - begun))
                edits[n] += [r.seconds for r in results.results]
        sent = [len(pickle.dumps((case, wish(case.edits[0], case)))) for case in chosen]
        back = [len(pickle.dumps(result)) for result in results.results]
    for n, found in rates.items():
        print(f"{n} workers: {statistics.median(found):.1f} cases a minute ({', '.join(f'{r:.1f}' for r in found)}), "
              f"{statistics.median(edits[n]):.2f} s an edit")  # fmt: skip
    print(f"bytes a case: {statistics.median(sent):.0f} sent, {statistics.median(back):.0f} back")


if __name__ == "__main__":
    main()
