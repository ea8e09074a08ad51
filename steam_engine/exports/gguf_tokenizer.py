"""A byte-level BPE tokenizer in the words of a GGUF file: tokens, kinds, merges, special tokens, chat template."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import gguf

from steam_engine.errors import ExportError

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPLITS = {  # llama.cpp's name -> the pattern that it splits text at before merging
    "llama-bpe": rf"{_SHORT}|{_WORDS}|\p{{N}}{{1,3}}|{_TAIL}",
    "qwen2": rf"{_SHORT}|{_WORDS}|\p{{N}}|{_TAIL}",
}


def splitter(tokenizer: Any) -> str:
    """llama.cpp's name for the way in which this tokenizer splits text before it merges.

    Raises:
        ExportError: another way than those of GPT-2, SmolLM, Llama 3 and Qwen2.
    """
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    model, split, normaliser = core["model"], core["pre_tokenizer"] or {}, core["normalizer"] or {}
    parts = split.get("pretokenizers", [split])
    plain = model["type"] == "BPE" and not model.get("byte_fallback") and normaliser.get("type") in (None, "NFC")
    byte_level = parts[-1].get("type") == "ByteLevel" and not parts[-1].get("add_prefix_space")
    found = _named(parts) if plain and byte_level else None
    if found is None or bool(model.get("ignore_merges")) != (found == "llama-bpe"):
        raise ExportError("This model's tokenizer is not one that is written to GGUF here.")
    return found


def _named(parts: list[dict[str, Any]]) -> str | None:
    if parts[-1].get("use_regex", True):
        first = [part["type"] for part in parts[:-1]]
        if first == ["Digits"] and parts[0].get("individual_digits"):
            return "smollm"
        return None if first else "gpt-2"
    if len(parts) != 2 or parts[0].get("type") != "Split" or parts[0].get("behavior") != "Isolated":
        return None
    pattern = parts[0]["pattern"].get("Regex")
    return next((name for name, known in _SPLITS.items() if known == pattern), None)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, rows: int) -> None:
    """Writes the tokenizer.

    Args:
        writer: of the file.
        tokenizer: a fast tokenizer.
        rows: of the embedding, of which a model may have more than tokens.

    Raises:
        ExportError: see `splitter`; or more tokens than rows.
    """
    by_id = {id: text for text, id in tokenizer.get_vocab().items()}
    if max(by_id) >= rows:
        raise ExportError("The tokenizer has more tokens than the model has embeddings.")
    added = tokenizer.added_tokens_decoder
    kinds = []
    for id in range(rows):
        if id in added:
            kinds.append(gguf.TokenType.CONTROL if added[id].special else gguf.TokenType.USER_DEFINED)
        else:
            kinds.append(gguf.TokenType.NORMAL if id in by_id else gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter(tokenizer))
    writer.add_token_list([by_id.get(id, f"[PAD{id}]") for id in range(rows)])
    writer.add_token_types(kinds)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=rows)
    special.add_special_token = _added_around(tokenizer)
    special.add_to_gguf(writer, quiet=True)


def _added_around(tokenizer: Any) -> dict[str, bool]:
    """Whether plain text gets a first and a last token, as the tokenizer does it and not as its files may say."""
    ids = tokenizer("a")["input_ids"]
    return {"bos": ids[0] == tokenizer.bos_token_id, "eos": ids[-1] == tokenizer.eos_token_id}
