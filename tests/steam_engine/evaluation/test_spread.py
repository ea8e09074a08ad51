"""On the workers of a Ray cluster a run has the results that it has alone, whatever happens to a worker."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.cluster_utils import Cluster as Machines

from steam_engine.errors import EditCancelledError, EvaluationError
from steam_engine.evaluation import cluster as cluster_module
from steam_engine.evaluation import spread
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question
from steam_engine.evaluation.cluster import HEADROOM, Cluster, connected
from steam_engine.evaluation.results import Plan, Result, ResultFile
from steam_engine.evaluation.running import Evaluation
from steam_engine.evaluation.spread import Spread
from steam_engine.evaluation.wishes import plain_wish
from steam_engine.evaluation.worker import Job, Worker, WorkerModel, worker_model
from steam_engine.loading import LoadedModel, load_model
from steam_engine.methods.registry import method
from steam_engine.types import Progress
from tests.steam_engine.conftest import SETTINGS, quiet

METHODS = ("steam", "told")
NEVER = threading.Event()


def case(number: int, subject: str, target: str) -> EvalCase:
    edit = CaseEdit(subject, "The capital of {} is", target, ("What is the capital of {}?",))
    questions = (
        Question("direct", f"What is the capital of {subject}?", (target,)),
        Question("multi_hop", f"Where is the capital of {subject}?", ("Nowhere",), f"Where is {target}?"),
        Question("locality", "The capital of Italy is", ("Rome",)),
    )
    return EvalCase(number, (edit,), questions)


CASES = tuple(case(n, s, "Oslo") for n, s in enumerate(("France", "Spain", "Germany", "Poland", "Greece"), start=1))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two CPUs for two workers, with little shared memory, no dashboard, and as much right to the CPU as this test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        machines = Machines(
            initialize_head=True,
            head_node_args={"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False},
        )
        try:
            with connected(machines.address) as found:
                yield found
        finally:
            machines.shutdown()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def loaded(tiny_model: Path, cache: Path) -> LoadedModel:
    return load_model(str(tiny_model), "cpu", "float32", cache)


@pytest.fixture(scope="module")
def order(loaded: LoadedModel, cache: Path) -> WorkerModel:
    return worker_model(loaded, "cpu", cache, "each", SETTINGS)


def plan(mode: str = "each") -> Plan:
    numbers = tuple(c.number for c in CASES)
    return Plan(
        model="tiny", fingerprint="f", dtype="float32", cases="c", numbers=numbers, mode=mode, size=2, settings={}
    )


def alone(loaded: LoadedModel, cache: Path, results: ResultFile, mode: Any = "each") -> list[Result]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a worker has
    try:
        run = Evaluation(loaded, CASES, plain_wish, results, mode, 2, quiet, NEVER)
        for name in METHODS:
            run.run(method(name, loaded, cache, quiet, NEVER, SETTINGS))
    finally:
        torch.set_num_threads(before)
    return comparable(results.results)


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    return alone(loaded, cache, ResultFile(tmp_path_factory.mktemp("alone"), plan()))


def comparable(results: Sequence[Result]) -> list[Result]:
    """Without what is another number at every run, in order."""
    return sorted((replace(r, seconds=0, peak_mib=0) for r in results), key=lambda r: (r.method, r.case))


def spread_out(
    cluster: Cluster,
    order: WorkerModel,
    progress: Callable[[Progress], None] = quiet,
    tell: Callable[[str], None] = print,
    cancel: threading.Event = NEVER,
    worker: type[Worker] = Worker,
    n: int = 2,
) -> Spread:
    return Spread(cluster.places("cpu", 0)[:n], order, progress, tell, cancel, worker)


def test_the_results_are_those_of_a_run_alone(
    cluster: Cluster, order: WorkerModel, expected: list[Result], tmp_path: Path
) -> None:
    told: list[Progress] = []
    results = ResultFile(tmp_path, plan())
    with spread_out(cluster, order, told.append) as workers:
        for name in METHODS:
            assert workers.run(name, CASES, "each", 1, plain_wish, results) == []
        assert len(set(workers.pids)) == 2
        assert os.getpid() not in workers.pids
    assert comparable(results.results) == expected
    assert comparable(ResultFile(tmp_path, plan()).results) == expected  # on the disk as well
    assert all(r.seconds > 0 for r in results.results if r.method == "steam")
    assert all(r.peak_mib > 10 for r in results.results)
    assert [(p.stage, p.done, p.total) for p in told if "steam" in p.stage] == [
        ("Evaluating steam", n, 5) for n in range(6)
    ]


def test_a_worker_that_is_killed_loses_no_result_and_a_run_alone_can_be_continued(
    cluster: Cluster, order: WorkerModel, loaded: LoadedModel, cache: Path, expected: list[Result], tmp_path: Path
) -> None:
    results = ResultFile(tmp_path, plan())
    for result in expected[:2]:  # measured alone
        results.add(result)
    lines: list[str] = []
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        if progress.done >= 3 and not killed:
            killed.append(workers.pids[0])
            os.kill(killed[0], signal.SIGKILL)

    with spread_out(cluster, order, kill_one, lines.append) as workers:
        for name in METHODS:
            assert workers.run(name, CASES, "each", 1, plain_wish, results) == []
        assert killed[0] not in workers.pids
    assert comparable(results.results) == expected
    assert f"process {killed[0]}): its process died." in " ".join(lines)
    assert alone(loaded, cache, ResultFile(tmp_path, plan())) == expected  # nothing is left to do
    assert len(results.path.read_text().splitlines()) == len(expected)


class Fragile(Worker):
    """Dies of one case every time."""

    def measure(self, job: Job) -> tuple[Result, ...]:
        if job.cases[0].number == 2:
            os._exit(1)
        return super().measure(job)


def test_a_case_that_kills_every_worker_is_reported_and_the_others_are_measured(
    cluster: Cluster, order: WorkerModel, expected: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "TRIES", 2)
    results = ResultFile(tmp_path, plan())
    lines: list[str] = []
    with spread_out(cluster, order, tell=lines.append, worker=Fragile) as workers:
        (failed,) = workers.run("told", CASES[:3], "each", 1, plain_wish, results)
    assert (failed.method, failed.case) == ("told", 2)
    assert failed.reason == "2 tries failed; its process died."
    assert len(lines) == 2
    assert comparable(results.results) == [r for r in expected if r.method == "told" and r.case in (1, 3)]


def test_a_stopped_run_of_batches_is_continued_alone(
    cluster: Cluster, order: WorkerModel, loaded: LoadedModel, cache: Path, tmp_path: Path
) -> None:
    cancel = threading.Event()
    results = ResultFile(tmp_path / "spread", plan("batch"))

    def stop(progress: Progress) -> None:
        if progress.done:
            cancel.set()

    with spread_out(cluster, replace(order, mode="batch"), stop, cancel=cancel, n=1) as workers:
        with pytest.raises(EvaluationError, match="cannot be spread"):
            workers.run("steam", CASES, "sequential", 1, plain_wish, results)
        with pytest.raises(EditCancelledError, match="run it again to go on"):
            workers.run("steam", CASES, "batch", 2, plain_wish, results)
    assert workers.pids == ()
    assert [(r.case, r.done) for r in results.results] == [(1, 2), (2, 2)]
    expected = alone(loaded, cache, ResultFile(tmp_path / "alone", plan("batch")), "batch")
    assert alone(loaded, cache, ResultFile(tmp_path / "spread", plan("batch")), "batch") == expected


def test_a_worker_without_the_model_is_named(cluster: Cluster, order: WorkerModel, tmp_path: Path) -> None:
    with (
        spread_out(cluster, replace(order, model="/nowhere/model"), n=1) as workers,
        pytest.raises(
            EvaluationError, match=r"worker on .*process \d+\) cannot take part: '/nowhere/model' is neither"
        ),
    ):
        workers.run("told", CASES, "each", 1, plain_wish, ResultFile(tmp_path, plan()))


def test_a_worker_with_another_model_does_not_take_part(order: WorkerModel) -> None:
    worker = Worker(torch.get_num_threads())
    assert worker.load(order) is None
    assert "has other weights than the one here" in str(worker.load(replace(order, fingerprint="0")))


class Unready(Worker):
    """Dies while it loads."""

    def load(self, wanted: WorkerModel) -> str | None:
        os._exit(1)


def test_workers_that_never_come_up_end_the_run(
    cluster: Cluster, order: WorkerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "TRIES", 2)
    with (
        spread_out(cluster, order, worker=Unready, n=1) as workers,
        pytest.raises(EvaluationError, match=r"No worker is left; .*its process died"),
    ):
        workers.run("told", CASES, "each", 1, plain_wish, ResultFile(tmp_path, plan()))


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # bound, but nobody listens
        with pytest.raises(EvaluationError, match=rf"{address} cannot be used: Connection refused"), connected(address):
            pass


def test_an_address_where_something_else_listens_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EvaluationError, match=rf"{address} cannot be used: no answer in 3"), connected(address):
            pass


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EvaluationError, match="pip install ray"), connected("local"):
        pass


def node(cpus: int, gpus: int = 0, memory: int = 0, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": float(cpus), "GPU": float(gpus), "memory": float(memory)}
    return {"NodeID": str(cpus), "NodeManagerAddress": "10.0.0.1", "Alive": alive, "Resources": resources}


def test_a_worker_a_gpu_or_a_worker_a_cpu_as_far_as_the_memory_goes() -> None:
    gib = 2**30
    mixed = Cluster((node(32, 8), node(4), node(64, 8, alive=False)))
    assert mixed.device("auto") == "cuda"
    assert mixed.device("cpu") == "cpu"
    assert [(p.n_cpus, p.n_gpus) for p in mixed.places("cuda", 0)] == [(4, 1)] * 8
    small = Cluster((node(8, memory=2 * (2 * gib + HEADROOM)), node(2, memory=gib)))
    assert small.device("auto") == "cpu"
    assert [(p.node, p.n_cpus, p.n_gpus) for p in small.places("cpu", gib)] == [("8", 4, 0)] * 2
    with pytest.raises(EvaluationError, match="offers a GPU"):
        small.places("cuda", gib)
    with pytest.raises(EvaluationError, match=r"201\.5 GiB"):
        small.places("cpu", 100 * gib)
