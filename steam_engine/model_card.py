"""The README of an exported checkpoint: which model it was, and which facts were changed."""

from __future__ import annotations

from collections.abc import Sequence

import transformers

from steam_engine.embedded import NAME
from steam_engine.loading import LoadedModel
from steam_engine.tokens import sentence
from steam_engine.types import JournalEntry


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def model_card(loaded: LoadedModel, entries: Sequence[JournalEntry]) -> str:
    """Markdown with front matter for the hub."""
    licence = "license: apache-2.0\n" if loaded.name == NAME else ""
    rows = "\n".join(
        f"| {e.number} | {_cell(sentence(e.edit.statements[0], e.edit.subject))} **{_cell(e.edit.target)}** "
        f"| {e.created} | {e.trace.layer} | {e.trace.weight_drift:.3f} |"
        for e in entries
    )
    table = (
        f"| # | fact | when (UTC) | layer | change of the matrix |\n|---|---|---|---|---|\n{rows}"
        if rows
        else "No facts were changed."
    )
    return (
        f"---\nlibrary_name: transformers\n{licence}tags:\n- knowledge-editing\n---\n\n"
        f"# {loaded.name}, corrected\n\n"
        f"Made from {loaded.name} (fingerprint `{loaded.fingerprint[:16]}`, "
        f"{str(loaded.dtype).removeprefix('torch.')}) by Amend: the facts below were written into the weights of "
        "MLP down projections with STEAM (Jeong et al., EMNLP 2025, arXiv 2510.10398). "
        f"Needs transformers {transformers.__version__.split('.')[0]} or newer.\n\n"
        f"## Changed facts\n\n{table}\n"
    )
