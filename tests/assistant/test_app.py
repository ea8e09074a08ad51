"""The front door, as a person opens it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str, said: str = "", cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    return subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=ROOT, input=said, capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip


def test_help_explains_itself_at_once() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in (
        "serve",
        "chat",
        "--model",
        "--device",
        "--dtype",
        "--workspace",
        "--host",
        "--port",
        "--yes",
        "/edit",
    ):
        assert word in done.stdout
    heavy = "import sys, app; print([name for name in ('torch', 'gradio', 'transformers') if name in sys.modules])"
    imported = subprocess.run([sys.executable, "-c", heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert imported.stdout == "[]\n"


def test_a_script_is_answered_line_by_line(tiny_model: Path, tmp_path: Path) -> None:
    said = "Hello\n\n/edit\n/undo 99\n/facts capital of France\n/history"
    done = run("chat", "--model", str(tiny_model), "--workspace", str(tmp_path / "work"), said=said, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("> ")] == [f"> {line}" for line in said.split("\n") if line]
    assert "Say what is true after /edit, for example: /edit The capital of France is Rome" in lines
    assert "There is no edit 99. See /history for the numbers." in lines
    assert any(line.startswith("The capital of France is Paris.") for line in lines)
    assert lines[-1].startswith("No edits yet.")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stderr
    assert "with 0 edits" in done.stderr


def test_an_export_from_the_command_line(tiny_model: Path, tmp_path: Path) -> None:
    options = ("--model", str(tiny_model), "--workspace", str(tmp_path / "work"))
    done = run("export", "gguf", "mine", *options, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "exports" / "mine" / "mine-F16.gguf").is_file()
    assert "Saved to " in done.stdout
    assert "llama.cpp" in done.stdout
    refused = run("export", "lora", "adapter", *options, cache=tmp_path)
    assert refused.returncode == 2
    assert "Edit first" in refused.stdout
    assert not (tmp_path / "work" / "exports" / "adapter").exists()


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = run("chat", "--workspace", str(tmp_path), "--model", "./nowhere")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("amend: ")
    assert "--model" in done.stderr
    assert "Traceback" not in done.stderr
