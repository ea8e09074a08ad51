"""safetensors: a complete Hugging Face directory, read back by plain transformers, which must answer the same."""

from __future__ import annotations

from pathlib import Path

import transformers

from steam_engine.exports.asking import same_answers
from steam_engine.exports.card import write_card
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work


def weight_bytes(model: EditedModel) -> int:
    """Size of all parameters."""
    return int(sum(p.numel() * p.element_size() for p in model.loaded.model.parameters()))


class Checkpoint:
    """Weights, configuration, tokenizer and model card."""

    name = "safetensors"

    def size(self, model: EditedModel) -> int:
        """The weights; the rest is small."""
        return weight_bytes(model)

    def scratch(self, model: EditedModel) -> int:
        """Next to nothing."""
        return 0

    def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
        """As transformers writes it."""
        model.loaded.model.save_pretrained(directory)
        model.loaded.tokenizer.save_pretrained(directory)
        major = transformers.__version__.split(".")[0]
        write_card(model, directory, {"library_name": "transformers"}, f"Needs transformers {major} or newer.")

    def check(self, exam: Examination, work: Work) -> Checked:
        """The same weights give the same answers."""
        read = read_back(
            "with_transformers", exam.model.loaded, exam.questions, exam.scratch, work, model=str(exam.copy)
        )
        same_answers(exam.questions, exam.live, read)
        return Checked(f"transformers {transformers.__version__}", read.answers)
