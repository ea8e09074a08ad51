"""An edit that is killed at any moment leaves the model as it was before it, or as it is after it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from steam_engine.editor import Editor
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model
from tests.steam_engine.test_editor import same, weights

EDITS = """
import sys
from pathlib import Path
import torch
from steam_engine.editor import Editor
from tests.steam_engine.conftest import SETTINGS, capital, quiet
torch.set_num_threads(1)
folder = Path(sys.argv[1])
editor = Editor(torch.load(folder / "model.pt", weights_only=False), folder / "journal", folder / "cache", SETTINGS)
editor.prepare(quiet)
print("ready", flush=True)
sys.stdin.readline()
editor.apply_batch([capital("Spain", "Oslo"), capital("Poland", "Paris")], quiet)
print("done", flush=True)
sys.stdin.readline()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", EDITS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.timeout(600)
def test_kill_at_random_moments(tmp_path: Path) -> None:
    def reopened() -> Editor:
        return Editor(taught_model("llama"), tmp_path / "journal", tmp_path / "cache", SETTINGS)

    torch.save(taught_model("llama"), tmp_path / "model.pt")  # taught anew, it would not be the same to the bit
    first = reopened()
    first.apply(capital(), quiet)
    before = weights(first)

    measured = start(tmp_path)  # how long the edits take, and what they lead to
    began = time.perf_counter()
    go(measured)
    assert measured.stdout is not None
    assert measured.stdout.readline() == "done\n"
    took = time.perf_counter() - began
    measured.kill()
    measured.communicate()
    editor = reopened()
    after = weights(editor)
    assert [e.number for e in editor.active] == [1, 2, 3]
    editor.undo(3)
    editor.undo(2)
    assert same(weights(editor), before)

    moments = random.Random(0)
    ended = []
    for _ in range(20):
        process = start(tmp_path)
        go(process)
        time.sleep(took * moments.uniform(0, 1.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        editor = reopened()
        now = weights(editor)
        n_active = len(editor.active)
        assert n_active in (1, 3)  # never one of the two
        assert same(now, before if n_active == 1 else after)
        ended.append(n_active)
        for entry in editor.active[1:][::-1]:
            editor.undo(entry.number)
    assert 1 in ended
