"""gguf: one file with weights, tokenizer and chat template for llama.cpp and its kin, read back by llama.cpp."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType as Type

from steam_engine.embedded import NAME
from steam_engine.errors import ExportError
from steam_engine.exports.asking import MAX_ANSWER_TOKENS, Reading, same_facts, same_opinion, same_tokens
from steam_engine.exports.card import write_card
from steam_engine.exports.gguf_tensors import ARCHITECTURES, head_size, plan
from steam_engine.exports.gguf_tokenizer import add_tokenizer, splitter
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel

_INSTEAD = (
    "Export it as safetensors, and convert that directory with llama.cpp's convert_hf_to_gguf.py, which knows nearly "
    "every family."
)
_BYTES_A_TOKEN = 64  # of text, merges and kinds: a little more than enough


class Quantisation(Enum):
    """How matrices are stored: (type, file type, most that the first word's probabilities may move, in nats)."""

    F16 = (Type.F16, gguf.LlamaFileType.MOSTLY_F16, 0.01)
    Q8_0 = (Type.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0, 0.1)


@dataclass(frozen=True)
class Gguf:
    """NAME-F16.gguf or NAME-Q8_0.gguf, and a model card."""

    quantisation: Quantisation

    @property
    def name(self) -> str:
        """What a person types."""
        return "gguf" if self.quantisation is Quantisation.F16 else "gguf-q8_0"

    def size(self, model: EditedModel) -> int:
        """To some kilobytes."""
        loaded = model.loaded
        family = loaded.model.config.model_type
        if family not in ARCHITECTURES:
            raise ExportError(f"Models of the family '{family}' are not written to GGUF here. {_INSTEAD}")
        if getattr(loaded.model.config, "use_sliding_window", False):
            raise ExportError(f"Models with a sliding window are not written to GGUF here. {_INSTEAD}")
        try:
            splitter(loaded.tokenizer)
            tensors = plan(loaded.model, self.quantisation.value[0])
        except ExportError as problem:
            raise ExportError(f"{problem} {_INSTEAD}") from None
        return sum(tensor.nbytes for tensor in tensors) + _BYTES_A_TOKEN * int(loaded.model.config.vocab_size)

    def scratch(self, model: EditedModel) -> int:
        """Next to nothing."""
        return 0

    def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
        """Tensor by tensor, so that only one of them is in memory twice."""
        loaded = model.loaded
        path = directory / f"{name}-{self.quantisation.name}.gguf"
        writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[loaded.model.config.model_type]])
        _describe(writer, loaded, self.quantisation)
        add_tokenizer(writer, loaded.tokenizer, int(loaded.model.config.vocab_size))
        tensors = plan(loaded.model, self.quantisation.value[0])
        for tensor in tensors:
            writer.add_tensor_info(tensor.name, tensor.shape, tensor.dtype, tensor.nbytes, tensor.type)
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for done, tensor in enumerate(tensors):
                work.tell("Writing the tensors", done, len(tensors), tensor.name)
                writer.write_tensor_data(tensor.data())
        finally:
            writer.close()
        usage = f"For llama.cpp and what is built on it:\n\n```sh\nllama-cli -m {path.name} -cnv\n```"
        write_card(model, directory, {"library_name": "gguf"}, usage)

    def check(self, exam: Examination, work: Work) -> Checked:
        """The same tokens, nearly the same first word's probabilities, and no edited fact lost."""
        (path,) = exam.copy.glob("*.gguf")
        if importlib.util.find_spec("llama_cpp") is not None:
            read = _by_llama_cpp(exam, path, work)
            same_tokens(exam.questions, exam.live, read)
            reader = f"llama.cpp (llama-cpp-python {version('llama-cpp-python')})"
        else:
            read = read_back(
                "with_transformers", exam.model.loaded, exam.questions, exam.scratch, work,
                model=str(exam.copy), gguf=path.name,
            )  # fmt: skip
            reader = f"the GGUF reader of transformers {version('transformers')}, as llama-cpp-python is not installed"
        try:
            same_opinion(exam.questions, exam.live, read, self.quantisation.value[2])
            same_facts(exam.questions, exam.live, read)
        except ExportError as problem:
            if self.quantisation is Quantisation.F16:
                raise
            raise ExportError(f"{problem} 8 bits may be too coarse for this model: export it as gguf.") from None
        return Checked(reader, read.answers)


def _by_llama_cpp(exam: Examination, path: Path, work: Work) -> Reading:
    loaded = exam.model.loaded
    template: Any = loaded.tokenizer.chat_template
    context = max(map(len, exam.live.ids)) + MAX_ANSWER_TOKENS + 8
    return read_back(
        "with_llama_cpp", loaded, exam.questions, exam.scratch, work,
        model=str(path), context=context, template=template,
    )  # fmt: skip


def _describe(writer: gguf.GGUFWriter, loaded: LoadedModel, quantisation: Quantisation) -> None:
    config = loaded.model.config
    writer.add_type("model")
    writer.add_name(f"{loaded.name}, corrected")
    if loaded.name == NAME:
        writer.add_license("apache-2.0")
    writer.add_file_type(quantisation.value[1])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(loaded.max_tokens)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(head_size(config))
    writer.add_key_length(head_size(config))
    writer.add_value_length(head_size(config))
    writer.add_vocab_size(config.vocab_size)
