"""Runs cases under methods: edit, ask, write down, take back. What is written down already is not done again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from steam_engine.errors import EditCancelledError
from steam_engine.evaluation.asking import ask, is_unfinished
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question
from steam_engine.evaluation.health import Baseline, fluency
from steam_engine.evaluation.memory import peak_memory
from steam_engine.evaluation.results import Asked, Result, ResultFile
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Method, Outcome, Session
from steam_engine.text import mentions
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback

Mode = Literal["each", "batch", "sequential"]
Wish = Callable[[CaseEdit, EvalCase], FactEdit]

CHECKPOINTS = (1, 10, 30, 100, 300, 1000)  # cases after which a sequence is measured, besides its end


@dataclass(frozen=True)
class _Before:
    """The unedited model's answers to a case's questions, and whether it knows the second links of its hops."""

    answers: tuple[str, ...]
    answerable: tuple[bool | None, ...]


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
        results: ResultFile,
        mode: Mode,
        size: int,
        progress: ProgressCallback,
        cancel: CancelToken,
    ) -> None:
        self._loaded, self._cases, self._wish, self._results = loaded, cases, wish, results
        self._mode, self._size, self._progress, self._cancel = mode, size, progress, cancel
        self._before: dict[int, _Before] = {}
        self._baseline = Baseline(loaded)

    def run(self, method: Method) -> None:
        """Measures every case that is not measured yet.

        Raises:
            EditCancelledError: `cancel` was set; what was measured stays.
            EvaluationError: the disk refused.
        """
        size = {"each": 1, "batch": self._size, "sequential": len(self._cases)}[self._mode]
        parts = [self._cases[i : i + size] for i in range(0, len(self._cases), size)]
        for number, part in enumerate(parts):
            ends = self._checkpoints(len(part))
            if all(self._results.has(method.name, case.number, n) for n in ends for case in part[:n]):
                continue
            self._tell(method, number * size)
            for case in part:
                self._know(case)
            try:
                with method.session() as session:
                    self._part(method.name, session, part, ends)
            except EditCancelledError:
                self._tell(method, number * size)  # says it in the words of an evaluation
                raise
        self._tell(method, len(self._cases))

    def _checkpoints(self, n: int) -> list[int]:
        """After how many cases of a session everything so far is asked."""
        if self._mode != "sequential":
            return [n]
        return [*(c for c in CHECKPOINTS if c < n), n]

    def _tell(self, method: Method, done: int) -> None:
        if self._cancel.is_set():
            raise EditCancelledError("The evaluation was stopped; run it again to go on.")
        self._progress(Progress(f"Evaluating {method.name}", done, len(self._cases), "cases"))

    def _know(self, case: EvalCase) -> None:
        """Asks the unedited model, once for all methods."""
        if case.number in self._before:
            return
        answers = self._ask(case.questions, None)
        seconds = [q.second for q in case.questions if q.second]
        said = dict(zip(seconds, ask(self._loaded, seconds, [is_unfinished(s) for s in seconds]), strict=True))
        known = tuple(mentions(said[q.second], q.accept) if q.second else None for q in case.questions)
        self._before[case.number] = _Before(answers, known)

    def _ask(self, questions: Sequence[Question], session: Session | None) -> tuple[str, ...]:
        texts = [session.prompt(q.text) if session else q.text for q in questions]
        return ask(self._loaded, texts, [is_unfinished(q.text) for q in questions])

    def _part(self, method: str, session: Session, part: Sequence[EvalCase], ends: Sequence[int]) -> None:
        """Edits of a session, in one call or one by one, asked at its checkpoints."""
        outcomes: dict[int, list[Outcome]] = {}
        begin = 0
        calls = [part] if self._mode == "batch" else [[case] for case in part]
        peak = 0.0
        for call in calls:
            edits = [self._wish(edit, case) for case in call for edit in case.edits]
            with peak_memory(self._loaded.device) as used:
                made = iter(session.apply(edits, self._quiet, self._cancel))
            peak = max(peak, used.mib)
            for case in call:
                outcomes[case.number] = [next(made) for _ in case.edits]
            begin += len(call)
            if begin in ends:
                self._measure(method, session, part[:begin], outcomes, peak)

    def _quiet(self, _progress: Progress) -> None:
        """Steps of single edits are not told."""

    def _measure(
        self,
        method: str,
        session: Session,
        cases: Sequence[EvalCase],
        outcomes: dict[int, list[Outcome]],
        peak: float,
    ) -> None:
        drift = self._baseline.drift()
        for case in cases:
            if self._results.has(method, case.number, len(cases)):
                continue
            before, own = self._before[case.number], outcomes[case.number]
            after = self._ask(case.questions, session)
            asked = [
                Asked(
                    question.kind, question.text, old, new, mentions(old, question.accept),
                    mentions(new, question.accept), answerable,
                )
                for question, old, new, answerable in zip(
                    case.questions, before.answers, after, before.answerable, strict=True
                )
            ]  # fmt: skip
            self._results.add(
                Result(
                    method=method,
                    case=case.number,
                    done=len(cases),
                    asked=tuple(asked),
                    errors=tuple(o.error for o in own if o.error),
                    seconds=sum(o.seconds for o in own) / len(own),
                    steps=sum(o.steps for o in own) / len(own),
                    peak_mib=peak,
                    drift=drift.kl,
                    perplexity_ratio=drift.perplexity_ratio,
                    fluency=fluency(self._loaded, case.edits[0].subject),
                )
            )
