"""The formats by name, for front ends; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FormatName:
    """What a format is called."""

    name: str  # what a person types
    label: str  # in a list to choose from
    hint: str  # what it is good for: "save the corrected model as ..."


FORMAT_NAMES: tuple[FormatName, ...] = (
    FormatName("safetensors", "Checkpoint (safetensors)", "a complete Hugging Face checkpoint"),
    FormatName("lora", "Adapter (LoRA)", "a small PEFT adapter for the unedited model"),
    FormatName("gguf", "GGUF, 16 bit (llama.cpp, Ollama)", "a GGUF file in F16, for llama.cpp, Ollama and LM Studio"),
    FormatName("gguf-q8_0", "GGUF, 8 bit (llama.cpp, Ollama)", "a GGUF file in Q8_0, half as large"),
    FormatName("journal", "Journal (JSON)", "the edits alone, in one JSON file to replay on the same model"),
)
