"""One model on which sessions are measured: edit, ask, keep the result, take back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from steam_engine.evaluation.asking import ask, is_unfinished
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question
from steam_engine.evaluation.health import Baseline, fluency
from steam_engine.evaluation.memory import peak_memory
from steam_engine.evaluation.results import Asked, Result, Results
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Method, Outcome, Session
from steam_engine.text import mentions
from steam_engine.types import CancelToken, FactEdit, Progress

Mode = Literal["each", "batch", "sequential"]
Wish = Callable[[CaseEdit, EvalCase], FactEdit]


@dataclass(frozen=True)
class _Before:
    """The unedited model's answers to a case's questions, and whether it knows the second links of its hops."""

    answers: tuple[str, ...]
    answerable: tuple[bool | None, ...]


class Bench:
    """The unedited model, and what it says of itself.

    Args:
        loaded: the unedited model; it is unedited again whenever a method's session has ended.
        mode: in "batch" the cases of a session are edited in one call, else one by one.
        cancel: asked by the edits.
    """

    def __init__(self, loaded: LoadedModel, mode: Mode, cancel: CancelToken) -> None:
        self._loaded, self._mode, self._cancel = loaded, mode, cancel
        self._before: dict[int, _Before] = {}
        self._baseline = Baseline(loaded)

    def measure(
        self, method: Method, cases: Sequence[EvalCase], ends: Sequence[int], wish: Wish, results: Results
    ) -> None:
        """One session: edits, asked after each of `ends` cases.

        Args:
            method: how to edit.
            cases: of the session, in order.
            ends: numbers of cases after which everything so far is asked.
            wish: makes the engine's edit of a case's; see `plain_wish`.
            results: where results go; those that are there already are not measured again.

        Raises:
            EditCancelledError: `cancel` was set; what was measured stays.
            EvaluationError: the disk refused.
        """
        for case in cases:
            self._know(case, results)
        with method.session() as session:
            self._session(method.name, session, cases, ends, wish, results)

    def _know(self, case: EvalCase, results: Results) -> None:
        """Asks the unedited model, once for all methods."""
        if case.number in self._before:
            return
        for found in results.of_case(case.number):
            answers = tuple(a.before for a in found.asked)
            self._before[case.number] = _Before(answers, tuple(a.answerable for a in found.asked))
            return
        answers = self._ask(case.questions, None)
        seconds = [q.second for q in case.questions if q.second]
        said = dict(zip(seconds, ask(self._loaded, seconds, [is_unfinished(s) for s in seconds]), strict=True))
        known = tuple(mentions(said[q.second], q.accept) if q.second else None for q in case.questions)
        self._before[case.number] = _Before(answers, known)

    def _ask(self, questions: Sequence[Question], session: Session | None) -> tuple[str, ...]:
        texts = [session.prompt(q.text) if session else q.text for q in questions]
        return ask(self._loaded, texts, [is_unfinished(q.text) for q in questions])

    def _session(
        self,
        method: str,
        session: Session,
        cases: Sequence[EvalCase],
        ends: Sequence[int],
        wish: Wish,
        results: Results,
    ) -> None:
        outcomes: dict[int, list[Outcome]] = {}
        begin = 0
        calls = [cases] if self._mode == "batch" else [[case] for case in cases]
        peak = 0.0
        for call in calls:
            edits = [wish(edit, case) for case in call for edit in case.edits]
            with peak_memory(self._loaded.device) as used:
                made = iter(session.apply(edits, _quiet, self._cancel))
            peak = max(peak, used.mib)
            for case in call:
                outcomes[case.number] = [next(made) for _ in case.edits]
            begin += len(call)
            if begin in ends:
                self._measure(method, session, cases[:begin], outcomes, peak, results)

    def _measure(
        self,
        method: str,
        session: Session,
        cases: Sequence[EvalCase],
        outcomes: dict[int, list[Outcome]],
        peak: float,
        results: Results,
    ) -> None:
        drift = self._baseline.drift()
        for case in cases:
            if results.has(method, case.number, len(cases)):
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
            results.add(
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


def _quiet(_progress: Progress) -> None:
    """Steps of single edits are not told."""
