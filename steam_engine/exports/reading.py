"""Runs a reader: a script in a process of its own, which can import installed packages but nothing of this project.

Only the reader of the journal, which nobody else can read, adds the project to its path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steam_engine.errors import ExportError
from steam_engine.exports.asking import MAX_ANSWER_TOKENS, Question, Reading, prompts
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel
from steam_engine.tokens import pad_id

READERS = Path(__file__).with_name("readers")
POLL_SECONDS = 0.2
TIMEOUT = 1800  # seconds; a large model on a slow disk loads for minutes


def read_back(
    reader: str, loaded: LoadedModel, questions: Sequence[Question], scratch: Path, work: Work, **job: Any
) -> Reading:
    """What the reader says to the questions.

    Args:
        reader: name of a script in `readers`. It gets a job (JSON) on standard input and leaves reading.json
            (`ids` and `answers`) and logits.npy in the job's `out`, and what else the job asks for.
        loaded: the live model; says how its prompts look, and where and in which dtype to compute.
        questions: at least one.
        scratch: an empty directory for the reader's results.
        work: stops it.
        job: what else this reader has to know.

    Raises:
        ExportError: the process failed, took too long, or was stopped; it has ended.
    """
    job |= {
        "out": str(scratch),
        "prompts": prompts(loaded, questions),
        "special": not loaded.is_chat,
        "tokens": MAX_ANSWER_TOKENS,
        "dtype": loaded.dtype_name,
        "device": loaded.device_name,
        "pad": pad_id(loaded.tokenizer),
        "threads": torch.get_num_threads(),
    }
    _run(READERS / f"{reader}.py", job, work)
    try:
        found = json.loads((scratch / "reading.json").read_text(encoding="utf-8"))
        logits = torch.from_numpy(np.load(scratch / "logits.npy")).float()
    except (OSError, ValueError) as error:
        raise ExportError("The export could not be read back (its reader said nothing); it was removed.") from error
    return Reading(tuple(tuple(ids) for ids in found["ids"]), tuple(found["answers"]), logits)


def _run(script: Path, job: dict[str, Any], work: Work) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    deadline = time.monotonic() + TIMEOUT
    with subprocess.Popen(
        [sys.executable, "-I", str(script)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        env=environment,
    ) as reader:  # fmt: skip
        given: str | None = json.dumps(job)
        while True:
            try:
                _, complaints = reader.communicate(given, timeout=POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                given = None  # communicate goes on with what it was given first
                if work.cancel.is_set() or time.monotonic() > deadline:
                    reader.kill()
                    work.go_on()
                    raise ExportError("The export could not be read back in time; it was removed.") from None
    if reader.returncode != 0:
        silent = f"its reader crashed, signal {-reader.returncode}" if reader.returncode < 0 else "no message"
        last = (complaints.strip().splitlines() or [silent])[-1]
        raise ExportError(f"The export could not be read back ({last[:200]}); it was removed.")
