"""Reads a GGUF file with llama.cpp: its tokenizer, its kernels, on the CPU."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]  # llama_cpp is not typed
def silent(level: int, text: bytes, data: Any) -> None:
    """A model of any size is described on hundreds of lines."""


class Model:
    """A GGUF file and one sequence of tokens."""

    def __init__(self, path: str, tokens: int, threads: int) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False  # weights repacked for AMX crash some builds
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            raise SystemExit("llama.cpp cannot load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = tokens
        context.n_threads = context.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        if not self._context:
            raise SystemExit("llama.cpp has no room for it")
        self._size = tokens
        self.vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def template(self) -> str | None:
        """The chat template, if there is one."""
        text = llama_cpp.llama_model_chat_template(self._model, None)
        return text.decode() if text else None

    def tokenize(self, text: str, around: bool) -> list[int]:
        """Token ids; `around`: with the tokens that belong before and after plain text."""
        raw, ids = text.encode(), (llama_cpp.llama_token * self._size)()
        count = llama_cpp.llama_tokenize(self.vocabulary, raw, len(raw), ids, self._size, around, True)
        if count < 0:
            raise SystemExit(f"it splits a prompt into {-count} tokens")
        return list(ids[:count])

    def forget(self) -> None:
        """Begin a new sequence."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def read(self, ids: list[int]) -> np.ndarray[Any, Any]:
        """Appends tokens to the sequence; logits of the next one."""
        tokens = (llama_cpp.llama_token * len(ids))(*ids)  # the batch only points to it
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp cannot run it")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(logits, (llama_cpp.llama_vocab_n_tokens(self.vocabulary),)).copy()

    def text(self, ids: list[int]) -> str:
        """Without special tokens."""
        pieces, buffer = [], ctypes.create_string_buffer(1024)
        for id in ids:
            length = llama_cpp.llama_token_to_piece(self.vocabulary, id, buffer, len(buffer), 0, False)
            pieces.append(buffer.raw[: max(0, length)])
        return b"".join(pieces).decode("utf-8", "replace")


def main() -> None:
    """Job on standard input, answers and logits in the job's `out`."""
    job = json.load(sys.stdin)
    out = Path(job["out"])
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model = Model(job["model"], job["context"], job["threads"])
    if model.template() != job["template"]:
        raise SystemExit("it holds another chat template")
    found: dict[str, list[Any]] = {"ids": [], "answers": []}
    logits = []
    for prompt in job["prompts"]:
        ids = model.tokenize(prompt, job["special"])
        model.forget()
        next_one = model.read(ids)
        logits.append(next_one)
        said: list[int] = []
        while len(said) < job["tokens"]:
            token = int(next_one.argmax())
            if llama_cpp.llama_vocab_is_eog(model.vocabulary, token):
                break
            said.append(token)
            next_one = model.read([token])
        found["ids"].append(ids)
        found["answers"].append(model.text(said))
    np.save(out / "logits.npy", np.stack(logits))
    (out / "reading.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
