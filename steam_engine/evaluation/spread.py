"""Cases on the workers of a Ray cluster, with the same results as alone. A worker that dies loses no result.

The driver alone decides what is measured and writes it down; workers get cases and wishes and send results back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from steam_engine.errors import AmendError, EditCancelledError, EvaluationError
from steam_engine.evaluation.bench import Mode, Wish
from steam_engine.evaluation.case import EvalCase
from steam_engine.evaluation.cluster import Place
from steam_engine.evaluation.results import Failed, Result, Results
from steam_engine.evaluation.running import STOPPED, all_measured, checkpoints, sessions
from steam_engine.evaluation.worker import Job, Worker, WorkerModel
from steam_engine.types import CancelToken, Progress, ProgressCallback

TRIES = 3  # of a session, and of a worker that does not come up
PLACE_SECONDS = 300.0  # until the first worker has a process
_LOOK = 0.2  # seconds between looks at the cancel token

_Stage = Literal["start", "load", "prepare", "measure"]


@dataclass(eq=False)
class _Slot:
    """A place and the worker that is there now."""

    place: Place
    actor: Any
    name: str  # for people
    pid: int = 0
    failures: int = 0  # since the last result, other than in a session


@dataclass(eq=False)
class _Work:
    """The cases of a session to measure, and how often that went wrong."""

    cases: Sequence[EvalCase]
    tries: int = 0


@dataclass(frozen=True)
class _Task:
    """What a slot is busy with."""

    slot: _Slot
    stage: _Stage
    method: str = ""
    work: _Work | None = None


class Spread:
    """Workers of a connected cluster (see `cluster.connected`), until the context ends.

    Args:
        places: where the workers shall be.
        model: what they load.
        progress: told after every session.
        tell: told sentences for the user.
        cancel: looked at several times a second.
        worker: the class of the actors.
    """

    def __init__(
        self,
        places: Sequence[Place],
        model: WorkerModel,
        progress: ProgressCallback,
        tell: Callable[[str], None],
        cancel: CancelToken,
        worker: type[Worker] = Worker,
    ) -> None:
        self._model, self._progress, self._tell, self._cancel, self._worker = model, progress, tell, cancel, worker
        self._tasks: dict[Any, _Task] = {}  # by Ray's reference to the coming answer
        self._prepared: set[tuple[str, str]] = set()  # (machine, method)
        self._alive = False  # whether any worker ever was
        self._started = time.monotonic()
        self._slots = [_Slot(place, None, place.address) for place in places]
        self._last_reason = ""
        for slot in self._slots:
            self._start(slot)

    def __enter__(self) -> Spread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self._slots:
            ray.kill(slot.actor)
        self._slots, self._tasks = [], {}

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that have one, each on its own machine."""
        return tuple(slot.pid for slot in self._slots if slot.pid)

    def run(
        self, method: str, cases: Sequence[EvalCase], mode: Mode, size: int, wish: Wish, results: Results
    ) -> list[Failed]:
        """Measures every case that is not measured yet; the arguments are those of `Evaluation`.

        Returns:
            The cases that could not be measured in so many tries.

        Raises:
            EditCancelledError: `cancel` was set; what was measured stays.
            EvaluationError: the disk refused, a worker cannot start or load the model, or no worker is left.
        """
        if mode == "sequential":
            raise EvaluationError("A sequence is one long chain of cases and cannot be spread over workers.")
        parts = sessions(cases, mode, size)
        waiting = deque(_Work(p) for p in parts if not all_measured(results, method, p, checkpoints(len(p), mode)))
        failed: list[Failed] = []
        left, told = sum(len(work.cases) for work in waiting), -1
        while True:
            if self._cancel.is_set():
                raise EditCancelledError(STOPPED)
            if left != told:
                self._progress(Progress(f"Evaluating {method}", len(cases) - left, len(cases), "cases"))
                told = left
            if not left:
                return failed
            self._give_out(waiting, method, wish, results)
            for task, answer in self._answers():
                work = task.work
                if isinstance(answer, Exception):
                    failed += self._failure(task, answer, waiting)
                elif work is not None:
                    task.slot.failures = 0
                    for result in answer:
                        results.add(result)
                else:
                    self._ready(task, answer)
                if work is not None and work not in waiting:
                    left -= len(work.cases)
            self._check_workers()

    def _give_out(self, waiting: deque[_Work], method: str, wish: Wish, results: Results) -> None:
        busy = {task.slot for task in self._tasks.values()}
        for slot in self._slots:
            if slot in busy or not waiting:
                continue
            if (slot.place.node, method) in self._prepared:
                work = waiting.popleft()
                job = _job(method, work.cases, wish, results)
                self._submit(_Task(slot, "measure", method, work), slot.actor.measure.remote(job))
            elif not any(t.stage == "prepare" and t.slot.place.node == slot.place.node for t in self._tasks.values()):
                # What a method makes once and keeps on a machine's disk is made by one worker, while the others wait.
                self._submit(_Task(slot, "prepare", method), slot.actor.prepare.remote(method))

    def _answers(self) -> list[tuple[_Task, Any]]:
        """What has come back: answers, or exceptions in their place."""
        done, _ = ray.wait(list(self._tasks), timeout=_LOOK) if self._tasks else ([], [])
        found: list[tuple[_Task, Any]] = []
        for reference in done:
            task = self._tasks.pop(reference)
            try:
                found.append((task, ray.get(reference)))
            except Exception as error:  # whatever a worker raised arrives here
                found.append((task, error))
        return found

    def _ready(self, task: _Task, answer: Any) -> None:
        slot = task.slot
        if task.stage == "start":
            machine, slot.pid = answer
            slot.name = f"{slot.place.address} ({machine}, process {slot.pid})"
            self._alive = True
            self._submit(_Task(slot, "load"), slot.actor.load.remote(self._model))
        elif task.stage == "load":
            if answer is not None:
                raise EvaluationError(f"The worker on {slot.name} cannot take part: {answer}")
        else:
            self._prepared.add((slot.place.node, task.method))

    def _failure(self, task: _Task, error: Exception, waiting: deque[_Work]) -> list[Failed]:
        """Starts the worker anew, and puts its session back or gives it up."""
        slot, reason = task.slot, _reason(error)
        if isinstance(error, ray.exceptions.RuntimeEnvSetupError) or getattr(error, "actor_init_failed", False):
            raise EvaluationError(
                f"The worker on {slot.name} cannot start: {reason} Amend's requirements and the same Python must be "
                "installed on every machine of the cluster."
            )
        if task.stage == "prepare" and isinstance(getattr(error, "cause", None), AmendError):
            raise EvaluationError(f"{task.method} cannot be prepared on {slot.name}: {reason}")
        self._last_reason = f"{slot.name}: {reason}"
        self._tell(
            f"The worker on {self._last_reason}"
            + (" Its cases are run again." if task.work and task.work.tries + 1 < TRIES else "")
        )
        ray.kill(slot.actor)
        slot.failures += task.work is None  # a session's failures are limited by its own tries
        if slot.failures < TRIES:
            self._start(slot)
        else:
            self._slots.remove(slot)
        if task.work is None:
            return []
        task.work.tries += 1
        if task.work.tries < TRIES:
            waiting.append(task.work)
            return []
        return [Failed(task.method, case.number, f"{TRIES} tries failed; {reason}") for case in task.work.cases]

    def _start(self, slot: _Slot) -> None:
        options = {
            "num_cpus": slot.place.n_cpus,
            "num_gpus": slot.place.n_gpus,
            "max_restarts": 0,  # a fresh actor is made here, where tries are counted
            "scheduling_strategy": NodeAffinitySchedulingStrategy(slot.place.node, soft=False),
        }
        slot.pid = 0
        slot.actor = ray.remote(self._worker).options(**options).remote(slot.place.n_cpus)
        self._submit(_Task(slot, "start"), slot.actor.where.remote())

    def _submit(self, task: _Task, reference: Any) -> None:
        self._tasks[reference] = task

    def _check_workers(self) -> None:
        if not self._slots:
            raise EvaluationError(f"No worker is left; the last one was on {self._last_reason} Run it again to go on.")
        if not self._alive and time.monotonic() - self._started > PLACE_SECONDS:
            raise EvaluationError(
                f"The Ray cluster gave no worker in {PLACE_SECONDS:.0f} seconds; other jobs may have taken its CPUs "
                "and GPUs (`ray status` shows it). Run it again when they are free."
            )


def _job(method: str, part: Sequence[EvalCase], wish: Wish, results: Results) -> Job:
    known: list[Result] = []
    for case in part:
        found = results.of_case(case.number)
        known += [r for r in found if r.method == method] or found[:1]
    wishes = tuple(tuple(wish(edit, case) for edit in case.edits) for case in part)
    return Job(method, tuple(part), wishes, tuple(known))


def _reason(error: Exception) -> str:
    """One sentence about what became of a worker."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}."
    if getattr(error, "actor_init_failed", False):
        return (str(error).strip().splitlines() or [""])[-1]
    if isinstance(error, ray.exceptions.RayActorError):
        return "its process died."
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
