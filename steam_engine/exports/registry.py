"""The formats that there are, by name."""

from __future__ import annotations

from steam_engine.exports.checkpoint import Checkpoint
from steam_engine.exports.gguf_file import Gguf, Quantisation
from steam_engine.exports.journal_file import JournalFile
from steam_engine.exports.lora import Lora
from steam_engine.exports.transaction import ExportFormat

_ALL: tuple[ExportFormat, ...] = (
    Checkpoint(), Lora(), Gguf(Quantisation.F16), Gguf(Quantisation.Q8_0), JournalFile(),
)  # fmt: skip
FORMATS: dict[str, ExportFormat] = {format.name: format for format in _ALL}
