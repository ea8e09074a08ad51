"""One process in one workspace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assistant.errors import WorkspaceError
from assistant.workspace import open_workspace

HOLD = """
import sys, pathlib
from assistant.workspace import open_workspace
workspace = open_workspace(pathlib.Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_directories_are_made(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "a" / "b") as workspace:
        assert workspace.journal.is_dir()
        assert workspace.store.is_dir()
        assert workspace.exports.is_dir()
        assert workspace.root == tmp_path / "a" / "b"


def test_a_second_process_is_refused_and_a_crash_frees_the_workspace(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(WorkspaceError, match="--workspace"):
            open_workspace(tmp_path)
    finally:
        other.kill()  # no clean-up of its own
        other.communicate(timeout=10)
    open_workspace(tmp_path).close()


def test_it_can_be_opened_again_after_closing(tmp_path: Path) -> None:
    open_workspace(tmp_path).close()
    open_workspace(tmp_path).close()


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot be written"):
        open_workspace(tmp_path / "file" / "inside")
