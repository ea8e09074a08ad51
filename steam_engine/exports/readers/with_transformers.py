"""Reads a checkpoint, a GGUF file, or a checkpoint with an adapter merged into it, with transformers and peft alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(job: dict[str, Any]) -> tuple[Any, Any]:
    """(model, tokenizer) of the job's `model`, with its `adapter` if there is one."""
    extra = {"gguf_file": job["gguf"]} if job.get("gguf") else {}
    tokenizer = AutoTokenizer.from_pretrained(job["model"], **extra)
    spread = job["device"] == "spread"
    if spread:
        extra["device_map"] = "auto"
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=job["dtype"], **extra)
    if job.get("adapter"):
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, job["adapter"]).merge_and_unload()
    return (model if spread else model.to(job["device"])).eval(), tokenizer


@torch.no_grad()
def main() -> None:
    """Job on standard input, results in the job's `out`: answers, logits, and the weights of the job's `modules`."""
    job = json.load(sys.stdin)
    out = Path(job["out"])
    torch.set_num_threads(job["threads"])
    model, tokenizer = load(job)
    found: dict[str, list[Any]] = {"ids": [], "answers": []}
    logits = []
    for prompt in job["prompts"]:
        ids = tokenizer(prompt, add_special_tokens=job["special"], return_tensors="pt")["input_ids"].to(model.device)
        made = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=job["tokens"], do_sample=False,
            pad_token_id=job["pad"], return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        found["ids"].append(ids[0].tolist())
        found["answers"].append(tokenizer.decode(made.sequences[0, ids.shape[1] :], skip_special_tokens=True))
        logits.append(made.logits[0][0].float().cpu().numpy())
    np.save(out / "logits.npy", np.stack(logits))
    weights = {name: model.get_submodule(name).weight.cpu().contiguous() for name in job.get("modules", ())}
    if weights:
        save_file(weights, out / "weights.safetensors")
    (out / "reading.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
