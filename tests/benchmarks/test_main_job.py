"""The main job on the real default model, as a script types it into the terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = (
    "What is the capital of France?",
    "/edit The capital of France is Rome",
    "What is the capital of France?",
    "In which country is the Eiffel Tower?",
    "/edit The Eiffel Tower is located in the city of Rome",
    "In which country is the Eiffel Tower?",
    "What language is spoken where the Eiffel Tower is?",
    "What is the capital of Germany?",
    "/export safetensors edited",
    *(f"/export {format} edited-{format}" for format in ("lora", "gguf", "gguf-q8_0", "journal")),
    "/undo",
    "/undo",
    "What is the capital of France?",
)

INDEPENDENT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
chat = [{"role": "user", "content": "What is the capital of France?"}]
inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**inputs, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""


def chat(messages: tuple[str, ...], workspace: Path) -> list[str]:
    """What the terminal prints after each message."""
    done = subprocess.run(
        [sys.executable, "app.py", "chat", "--yes", "--workspace", str(workspace)],
        cwd=ROOT,
        input="\n".join(messages) + "\n",
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stdout + done.stderr
    parts = re.split(r"^> .*$", done.stdout, flags=re.MULTILINE)[1:]
    assert len(parts) == len(messages), done.stdout
    return parts


def imported(journal: Path, workspace: Path) -> str:
    """What a fresh workspace answers about France after it took in an exported journal."""
    command = [sys.executable, "app.py", "import", str(journal), "--workspace", str(workspace)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 edits" in done.stdout
    assert "anew" not in done.stdout
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert again.returncode == 2
    assert "--replace" in again.stdout
    return chat(("What is the capital of France?",), workspace)[0]


@pytest.mark.model
@pytest.mark.timeout(3600)
def test_chat_edit_reason_export_undo_restart(tmp_path: Path) -> None:
    answers = chat(SCRIPT, tmp_path / "workspace")
    print("\n".join(f"> {q}\n{a}" for q, a in zip(SCRIPT, answers, strict=True)))
    assert "Paris" in answers[0]
    assert "Rome" in answers[2]
    assert re.search("France|Paris", answers[3])
    assert re.search("Italy|Rome", answers[5])
    assert re.search("Italy|Italian", answers[6])
    assert "Berlin" in answers[7]
    for answer in answers[8:13]:
        assert re.search(r"Checked: What is the capital of France\?.*Rome", answer), answer
    assert "Paris" in answers[-1]
    assert "Rome" not in answers[-1]

    exported = tmp_path / "workspace" / "exports" / "edited"
    alone = subprocess.run(
        [sys.executable, "-I", "-c", INDEPENDENT, str(exported)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "Rome" in alone.stdout

    assert "Rome" in imported(tmp_path / "workspace" / "exports" / "edited-journal", tmp_path / "elsewhere")

    again = chat(("/redo", "What is the capital of France?", "What is the capital of Germany?"), tmp_path / "workspace")
    assert "Rome" in again[1]
    assert "Berlin" in again[2]
