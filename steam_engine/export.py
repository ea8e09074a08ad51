"""Takes the corrected model away: a complete Hugging Face directory that appears only after plain transformers,
in a process of its own without any of this code, has loaded it and answered like the live model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError

from steam_engine.chat_format import render_chat
from steam_engine.errors import ExportError
from steam_engine.loading import LoadedModel
from steam_engine.model_card import model_card
from steam_engine.tokens import pad_id
from steam_engine.types import CancelToken, JournalEntry, Progress, ProgressCallback

MAX_ANSWER_TOKENS = 32
POLL_SECONDS = 0.2
CHECK_TIMEOUT = 1800  # seconds; a large model on a slow disk loads for minutes

READER = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

job = json.load(sys.stdin)
torch.set_num_threads(job["threads"])
tokenizer = AutoTokenizer.from_pretrained(job["path"])
model = AutoModelForCausalLM.from_pretrained(job["path"], dtype=job["dtype"]).to(job["device"]).eval()
answers = []
for prompt in job["prompts"]:
    ids = tokenizer(prompt, add_special_tokens=job["special"], return_tensors="pt")["input_ids"].to(job["device"])
    out = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=job["tokens"], do_sample=False,
        pad_token_id=job["pad"],
    )
    answers.append(tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True))
json.dump(answers, sys.stdout)
"""
"""The independent reader: transformers alone, fed a job on standard input, answers on standard output."""


@dataclass(frozen=True)
class ExportReport:
    """A finished export."""

    path: Path
    bytes: int
    seconds: float
    answers: tuple[tuple[str, str], ...]  # (question, what the exported model answers)


@torch.no_grad()
def live_answers(loaded: LoadedModel, questions: Sequence[str], cancel: CancelToken | None = None) -> tuple[str, ...]:
    """Greedy answers of the model in memory, one question at a time (as the independent reader does).

    Raises:
        ExportError: stopped by `cancel`.
    """
    answers = []
    for prompt in _prompts(loaded, questions):
        _check(cancel)
        encoded = loaded.tokenizer(prompt, add_special_tokens=not loaded.is_chat, return_tensors="pt")
        ids = encoded["input_ids"].to(loaded.device)
        out = loaded.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=MAX_ANSWER_TOKENS,
            do_sample=False, pad_token_id=pad_id(loaded.tokenizer),
        )  # fmt: skip
        answers.append(str(loaded.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)))
    return tuple(answers)


def _prompts(loaded: LoadedModel, questions: Sequence[str]) -> list[str]:
    return [render_chat(loaded.tokenizer, [{"role": "user", "content": q}]) for q in questions]


def _check(cancel: CancelToken | None) -> None:
    if cancel is not None and cancel.is_set():
        raise ExportError("The export was stopped; nothing is left of it.")


def read_back(loaded: LoadedModel, path: Path, questions: Sequence[str], cancel: CancelToken) -> tuple[str, ...]:
    """Answers of the checkpoint at `path`, given by plain transformers in a separate process.

    Raises:
        ExportError: the process failed, or `cancel` was set; the process has ended.
    """
    job = {
        "path": str(path),
        "prompts": _prompts(loaded, questions),
        "special": not loaded.is_chat,
        "tokens": MAX_ANSWER_TOKENS,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": str(loaded.device),
        "pad": pad_id(loaded.tokenizer),
        "threads": torch.get_num_threads(),
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    pipe = subprocess.PIPE
    deadline = time.monotonic() + CHECK_TIMEOUT
    with subprocess.Popen(
        [sys.executable, "-I", "-c", READER], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as reader:
        given: str | None = json.dumps(job)
        while True:
            try:
                stdout, stderr = reader.communicate(given, timeout=POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                given = None  # communicate goes on with what it was given first
                if cancel.is_set() or time.monotonic() > deadline:
                    reader.kill()
                    _check(cancel)
                    raise ExportError(
                        "The exported checkpoint could not be read back in time; it was removed."
                    ) from None
    if reader.returncode != 0:
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        raise ExportError(f"The exported checkpoint could not be read back ({last[:200]}); it was removed.")
    return tuple(json.loads(stdout))


def export_safetensors(
    loaded: LoadedModel,
    entries: Sequence[JournalEntry],
    target: Path,
    questions: Sequence[str],
    progress: ProgressCallback,
    copies: int = 1,
    cancel: CancelToken | None = None,
) -> ExportReport:
    """Writes the model as it is now to the new directory `target`.

    Args:
        loaded: the live, edited model.
        entries: active edits, for the model card.
        target: must not exist; its parent is made.
        questions: asked of both the live and the exported model; greedy answers must be equal.
        progress: told about every step.
        copies: how often the disk must have room for the weights; 2 when they are packed afterwards.
        cancel: set to stop; asked between the steps and while the checkpoint is read back.

    Raises:
        ExportError: target exists, no space, not writable, stopped, or the check failed. Nothing is left behind.
    """
    cancel = cancel or threading.Event()
    started = time.perf_counter()
    if target.exists():
        raise ExportError(f"There is already an export named '{target.name}'. Choose another name.")
    needed = copies * sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < needed * 1.1:
            raise ExportError(
                f"The export needs {needed / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB left. Free some space."
            )
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise ExportError(f"{target.parent} cannot be written to ({error.strerror}).") from error
    try:
        progress(Progress("Writing the checkpoint", 0, 3, f"{needed / copies / 1e9:.1f} GB"))
        loaded.model.save_pretrained(temporary)
        loaded.tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(model_card(loaded, entries), encoding="utf-8")
        progress(Progress("Asking the live model", 1, 3))
        expected = live_answers(loaded, questions, cancel)
        progress(Progress("Reading the checkpoint back with plain transformers", 2, 3))
        answers = read_back(loaded, temporary, questions, cancel)
        for question, live, read in zip(questions, expected, answers, strict=True):
            if live != read:
                raise ExportError(
                    f"The exported checkpoint answers '{question}' with '{read}', the live model with '{live}'; "
                    "it was removed."
                )
        temporary.chmod(0o755)
        temporary.rename(target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ExportError(f"The export could not be written ({reason}); nothing is left behind.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    progress(Progress("Exported", 3, 3))
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    pairs = tuple(zip(questions, answers, strict=True))
    return ExportReport(target, size, time.perf_counter() - started, pairs)
