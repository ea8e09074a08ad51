"""From what the user names (nothing, a directory, a .gguf, a hub id) to a model that can be edited and saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from steam_engine.architecture import Architecture
from steam_engine.chat_format import has_chat_template
from steam_engine.converted import converted
from steam_engine.embedded import NAME, SHA256, embedded_model
from steam_engine.errors import ModelLoadError
from steam_engine.fingerprint import model_fingerprint
from steam_engine.placement import input_device
from steam_engine.preflight import check_memory, read_config
from steam_engine.refusals import check_config, check_not_quantised

SPREAD: Any = "auto"  # accelerate's word: fill the GPUs first, then memory, then the disk
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class StoredModel:
    """Where transformers reads the unedited weights again."""

    path: str  # a directory, or a hub id that is in the cache
    gguf: str | None = None  # file in that directory


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model on its device, with its tokenizer and identity."""

    model: Any
    tokenizer: Any
    arch: Architecture
    name: str  # for people
    source: str  # what to pass as --model to get it again; "" for the embedded default
    fingerprint: str  # hex, of the base weights
    device: torch.device
    dtype: torch.dtype
    is_chat: bool  # has a chat template
    max_tokens: int  # longest context in tokens
    stored: StoredModel | None = None  # None: made in memory
    is_spread: bool = False  # over several devices, of which `device` takes the inputs

    @property
    def device_name(self) -> str:
        """The device as --device takes it: "cuda:1"."""
        return "spread" if self.is_spread else str(self.device)

    @property
    def dtype_name(self) -> str:
        """The dtype as --dtype takes it: "float32"."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def n_bytes(self) -> int:
        """Of the weights."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())


def pick_device(device: str) -> torch.device:
    """The device a user means; "auto" prefers cuda, then mps, then cpu. "spread" begins at the same one.

    Raises:
        ModelLoadError: unknown, or not there.
    """
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device in ("auto", "spread"):
        device = next(name for name in ("cuda", "mps", "cpu") if there[name])
    kind = device.split(":")[0]
    if kind not in there:
        raise ModelLoadError(f"Unknown device '{device}'. Use auto, cuda, mps, cpu or spread.")
    if not there[kind]:
        raise ModelLoadError(f"This machine has no {kind} device that torch can use. Use --device cpu.")
    return torch.device(device)


def pick_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The weights' type; "auto" is bfloat16 on cuda and float32 elsewhere (faster than emulated halves there).

    Raises:
        ModelLoadError: unknown name.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise ModelLoadError(f"Unknown dtype '{dtype}'. Use auto, float32, bfloat16 or float16.")
    return DTYPES[dtype]


def _locate(model: str | None) -> tuple[str, str | None, str]:
    """(path or hub id, gguf file name, display name)."""
    if model is None or model == "":
        file = embedded_model()
        return str(file.parent), file.name, NAME
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelLoadError(f"There is no file {path}. Check the path given to --model.")
        return str(path.parent), path.name, path.stem
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelLoadError(
                f"The directory {path} holds no config.json, so it is not a Hugging Face checkpoint. "
                "Give its path, a .gguf file, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct."
            )
        return str(path), None, path.resolve().name
    if path.exists() or path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelLoadError(
            f"'{model}' is neither a directory, a .gguf file nor a hub id. Check the path given to --model."
        )
    return model, None, model


def _drop_quantizer(model: Any) -> None:
    """Forgets that the weights came from a GGUF: they are plain tensors now, and must be savable."""
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        model.__dict__.pop(name, None)
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config


def _read(path: str, gguf: str | None, dtype: torch.dtype, **placement: Any) -> tuple[Any, Any]:
    """(model, tokenizer) by transformers; `placement` is for accelerate."""
    extra = {"gguf_file": gguf} if gguf else {}
    tokenizer = AutoTokenizer.from_pretrained(path, **extra)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **extra, **placement)
    if gguf:
        _drop_quantizer(model)
    return model, tokenizer


def load_model(
    model: str | None = None, device: str = "auto", dtype: str = "auto", cache_dir: Path | None = None
) -> LoadedModel:
    """Loads a model for chatting and editing, frozen and in evaluation mode.

    Args:
        model: None for the embedded default, a directory, a .gguf file or a hub id.
        device: auto, cuda, mps or cpu; or spread, for a model that does not fit on one device: accelerate lays its
            layers on all GPUs, then into memory, then on the disk, and every layer computes where it lies, or on the
            first GPU.
        dtype: auto, float32, bfloat16 or float16.
        cache_dir: where the embedded model is kept as a checkpoint (540 MB), so that the next start is fast;
            None does without.

    Raises:
        ModelLoadError: not found, unreadable, or no such device.
        NotEnoughMemoryError: it would not fit.
        ModelIntegrityError: the embedded model's file was changed.
        UnsupportedModelError: the architecture cannot be edited.
    """
    where = pick_device(device)
    torch_dtype = pick_dtype(dtype, where)
    path, gguf, name = _locate(model)
    try:
        if not model and cache_dir is not None:
            kept = converted(cache_dir / f"{NAME}-{SHA256[:16]}", lambda: _read(path, gguf, torch.float32))
            path, gguf = (str(kept), None) if kept else (path, gguf)
        if model:  # the embedded one fits wherever torch does
            config = read_config(path, gguf)
            check_config(config)
            if not gguf:
                check_not_quantised(config)
            if device != "spread":
                check_memory(name, config, torch_dtype, where)
        placement = {"device_map": SPREAD} if device == "spread" else {}
        loaded, tokenizer = _read(path, gguf, torch_dtype, **placement)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelLoadError(
            f"The model '{model or name}' could not be loaded: {reason[:300]} "
            "Give --model a directory, a .gguf file, or a hub id (which needs a network connection)."
        ) from error
    for parameter in loaded.parameters():
        parameter.requires_grad_(False)
    loaded.eval()
    if device == "spread":
        where = input_device(loaded)
    else:
        loaded.to(where)
    arch = Architecture(loaded)
    return LoadedModel(
        model=loaded,
        tokenizer=tokenizer,
        arch=arch,
        name=name,
        source=model or "",
        fingerprint=model_fingerprint(loaded, tokenizer),
        device=where,
        dtype=torch_dtype,
        is_chat=has_chat_template(tokenizer),
        max_tokens=int(getattr(loaded.config, "max_position_embeddings", 2048)),
        stored=StoredModel(path, gguf),
        is_spread=device == "spread",
    )
