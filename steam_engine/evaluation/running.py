"""Runs cases under methods, session after session. What is written down already is not done again."""

from __future__ import annotations

from collections.abc import Sequence

from steam_engine.errors import EditCancelledError
from steam_engine.evaluation.bench import Bench, Mode, Wish
from steam_engine.evaluation.case import EvalCase
from steam_engine.evaluation.results import Results
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Method
from steam_engine.types import CancelToken, Progress, ProgressCallback

CHECKPOINTS = (1, 10, 30, 100, 300, 1000)  # cases after which a sequence is measured, besides its end
STOPPED = "The evaluation was stopped; run it again to go on."


class Evaluation:
    """Cases on one model.

    Args:
        loaded: the unedited model; it is unedited again whenever a method's session has ended.
        cases: in order.
        wish: makes the engine's edit of a case's; see `plain_wish`.
        results: where results go, and what is there already.
        mode: every case on the clean model, `size` cases at once on the clean model, or one after another.
        size: of a batch.
        progress, cancel: told after, and asked before, every case.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        cases: Sequence[EvalCase],
        wish: Wish,
        results: Results,
        mode: Mode,
        size: int,
        progress: ProgressCallback,
        cancel: CancelToken,
    ) -> None:
        self._cases, self._wish, self._results = cases, wish, results
        self._mode, self._size, self._progress, self._cancel = mode, size, progress, cancel
        self._bench = Bench(loaded, mode, cancel)

    def run(self, method: Method) -> None:
        """Measures every case that is not measured yet.

        Raises:
            EditCancelledError: `cancel` was set; what was measured stays.
            EvaluationError: the disk refused.
        """
        done = 0
        for part in sessions(self._cases, self._mode, self._size):
            ends = checkpoints(len(part), self._mode)
            if not all_measured(self._results, method.name, part, ends):
                self._tell(method, done)
                try:
                    self._bench.measure(method, part, ends, self._wish, self._results)
                except EditCancelledError:
                    self._tell(method, done)  # says it in the words of an evaluation
                    raise
            done += len(part)
        self._tell(method, len(self._cases))

    def _tell(self, method: Method, done: int) -> None:
        if self._cancel.is_set():
            raise EditCancelledError(STOPPED)
        self._progress(Progress(f"Evaluating {method.name}", done, len(self._cases), "cases"))


def sessions(cases: Sequence[EvalCase], mode: Mode, size: int) -> list[Sequence[EvalCase]]:
    """The cases that share a session: one, `size` of them, or all."""
    size = {"each": 1, "batch": size, "sequential": len(cases)}[mode]
    return [cases[i : i + size] for i in range(0, len(cases), size)]


def checkpoints(n: int, mode: Mode) -> list[int]:
    """After how many of a session's n cases everything so far is asked."""
    if mode != "sequential":
        return [n]
    return [*(c for c in CHECKPOINTS if c < n), n]


def all_measured(results: Results, method: str, part: Sequence[EvalCase], ends: Sequence[int]) -> bool:
    """Whether nothing is left to do in a session."""
    return all(results.has(method, case.number, n) for n in ends for case in part[:n])
