"""What lives in one process of a cluster: a model, the methods on it, and a bench. Knows nothing of Ray."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from steam_engine.errors import AmendError
from steam_engine.evaluation.bench import Bench, Mode
from steam_engine.evaluation.case import EvalCase
from steam_engine.evaluation.results import Result, Results
from steam_engine.loading import LoadedModel, load_model
from steam_engine.methods.base import Method
from steam_engine.methods.registry import method
from steam_engine.settings import EditSettings
from steam_engine.types import FactEdit, Progress


@dataclass(frozen=True)
class WorkerModel:
    """What every worker loads, and how it measures."""

    model: str | None  # as for `load_model`
    device: str
    dtype: str
    fingerprint: str  # which model it must turn out to be
    cache_dir: Path  # on the worker's machine
    mode: Mode
    settings: EditSettings


def worker_model(loaded: LoadedModel, device: str, cache_dir: Path, mode: Mode, settings: EditSettings) -> WorkerModel:
    """What workers load in order to have the model that is loaded here."""
    path = Path(loaded.source).expanduser()
    model = str(path.resolve()) if loaded.source and path.exists() else loaded.source
    return WorkerModel(model or None, device, loaded.dtype_name, loaded.fingerprint, cache_dir, mode, settings)


@dataclass(frozen=True)
class Job:
    """One session of one method."""

    method: str
    cases: tuple[EvalCase, ...]
    wishes: tuple[tuple[FactEdit, ...], ...]  # for every case, of its edits in order
    known: tuple[Result, ...]  # of these cases: what need not be asked or measured again


class Worker:
    """One process.

    Args:
        n_threads: of torch.
    """

    def __init__(self, n_threads: int) -> None:
        torch.set_num_threads(n_threads)
        self._bench: Bench | None = None
        self._make: Callable[[str], Method] | None = None
        self._methods: dict[str, Method] = {}

    def where(self) -> tuple[str, int]:
        """(machine, process id)."""
        return socket.gethostname(), os.getpid()

    def load(self, wanted: WorkerModel) -> str | None:
        """Loads the model. Returns why it cannot, or None."""
        try:
            loaded = load_model(wanted.model, wanted.device, wanted.dtype, wanted.cache_dir)
        except AmendError as error:
            return str(error)
        if loaded.fingerprint != wanted.fingerprint:
            return f"its model '{loaded.name}' has other weights than the one here; give every machine the same files"
        never = threading.Event()  # a worker is not asked to stop, it is ended
        self._bench = Bench(loaded, wanted.mode, never)
        self._make = lambda name: method(name, loaded, wanted.cache_dir, _quiet, never, wanted.settings)
        return None

    def prepare(self, name: str) -> None:
        """Makes what a method needs once and keeps in the cache of its machine."""
        with self._method(name).session():
            pass

    def measure(self, job: Job) -> tuple[Result, ...]:
        """Runs a session. Returns the results of its cases that were not known."""
        assert self._bench is not None
        wishes = {
            (case.number, edit): wish
            for case, made in zip(job.cases, job.wishes, strict=True)
            for edit, wish in zip(case.edits, made, strict=True)
        }
        results = Results(job.known)
        self._bench.measure(
            self._method(job.method),
            job.cases,
            [len(job.cases)],
            lambda edit, case: wishes[case.number, edit],
            results,
        )
        return tuple(results.results[len(job.known) :])

    def _method(self, name: str) -> Method:
        assert self._make is not None
        if name not in self._methods:
            self._methods[name] = self._make(name)
        return self._methods[name]


def _quiet(_progress: Progress) -> None:
    """Nobody looks at the steps on a worker."""
