"""A Ray cluster: reached or refused in a bounded time, and where on it a model fits. Knows nothing of cases."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steam_engine
from steam_engine.errors import EvaluationError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 40.0
OBJECT_STORE = 128 * 2**20  # bytes; cases and results are small, and /dev/shm of a container often is
HEADROOM = 3 * 2**29  # bytes beside the weights and their edited copies: Python, torch, moments, activations

# A driver that finds something else than a cluster at an address hangs for minutes, or ends its whole process.
_PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


@dataclass(frozen=True)
class Place:
    """Room for one worker."""

    node: str  # Ray's id of the machine
    address: str  # of the machine, for people
    n_cpus: int
    n_gpus: int


@dataclass(frozen=True)
class Cluster:
    """The machines of a cluster, as `ray.nodes()` tells them."""

    nodes: tuple[Mapping[str, Any], ...]

    def device(self, asked: str) -> str:
        """The workers' device: for "auto", cuda where any machine offers a GPU, and cpu elsewhere."""
        if asked != "auto":
            return asked
        return "cuda" if any(node["Alive"] and node["Resources"].get("GPU", 0) >= 1 for node in self.nodes) else "cpu"

    def places(self, device: str, n_bytes: int) -> tuple[Place, ...]:
        """Room for workers: one a GPU, or one a CPU as far as the memory goes; a machine's CPUs are shared out evenly.

        Args:
            device: "cuda", or anything else for CPUs.
            n_bytes: of the weights.

        Raises:
            EvaluationError: nothing fits.
        """
        found: list[Place] = []
        need = 2 * n_bytes + HEADROOM
        for node in self.nodes:
            if not node["Alive"]:
                continue
            offered = node["Resources"]
            n_cpus, n_gpus = int(offered.get("CPU", 0)), int(offered.get("GPU", 0))
            n = min(n_cpus, n_gpus if device == "cuda" else int(offered.get("memory", 0) // need))
            if n:
                gpus = 1 if device == "cuda" else 0
                found += [Place(node["NodeID"], node["NodeManagerAddress"], n_cpus // n, gpus)] * n
        if not found:
            what = "offers a GPU" if device == "cuda" else f"has a CPU and {need / 2**30:.1f} GiB of memory"
            raise EvaluationError(f"No machine of the Ray cluster {what} for a worker. Use another --ray or --device.")
        return tuple(found)


def require_ray() -> None:
    """Refuses where Ray is not installed.

    Raises:
        EvaluationError: how to install it.
    """
    if importlib.util.find_spec("ray") is None:
        raise EvaluationError("--ray needs Ray, which is not installed: pip install ray")


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """This process as a driver of a cluster; a "local" one is started, and ended with the context.

    Args:
        address: "auto" (the cluster that runs on this machine, or RAY_ADDRESS), "local", or host:port.

    Raises:
        EvaluationError: Ray is not installed, or nothing that can be used answers at the address.
    """
    require_ray()
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of our own tells nobody that it runs
        os.environ.setdefault("RAY_worker_niceness", "0")  # seconds of an edit shall be those of a run alone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming behaviour, without the warning
    import ray

    own: dict[str, Any] = {}
    if address == "local":
        own = {"object_store_memory": OBJECT_STORE, "include_dashboard": False}
    else:
        _probe(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": [str(Path(steam_engine.__file__).parent)], "excludes": ["__pycache__"]},
            **own,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _unreachable(address, str(error)) from error
    try:
        yield Cluster(tuple(ray.nodes()))
    finally:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.shutdown()


def _probe(address: str) -> None:
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise _unreachable(address, error.strerror or str(error)) from None
    command = [sys.executable, "-c", _PROBE, address]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer in {ANSWER_SECONDS:.0f} seconds") from None
    if ran.returncode:
        raise _unreachable(address, (ran.stderr.strip().splitlines() or ["Ray ended without a word"])[-1])


def _unreachable(address: str, reason: str) -> EvaluationError:
    return EvaluationError(
        f"The Ray cluster at {address} cannot be used: {' '.join(reason.split())[:400]} "
        "Start one with `ray start --head`, or use --ray local."
    )
