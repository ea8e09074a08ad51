"""Replays an exported journal on the base model, read anew from the disk, and asks the result."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import torch


def main() -> None:
    """Job on standard input, answers and logits in the job's `out`. `replay` itself compares the weights."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from steam_engine.exports.asking import Question, ask_live
    from steam_engine.exports.journal_file import replay
    from steam_engine.exports.work import Work
    from steam_engine.loading import load_model

    job = json.load(sys.stdin)
    out = Path(job["out"])
    torch.set_num_threads(job["threads"])
    loaded = load_model(job["model"], job["device"], job["dtype"])
    replay(Path(job["journal"]), loaded)
    questions = [Question(text) for text in job["texts"]]
    said = ask_live(loaded, questions, Work(lambda _: None, threading.Event()))
    np.save(out / "logits.npy", said.logits.numpy())
    found = {"ids": said.ids, "answers": said.answers}
    (out / "reading.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
