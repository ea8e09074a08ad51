"""The README of an export: which model it was, which facts were changed, and how to use what lies beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from steam_engine.embedded import NAME
from steam_engine.exports.model import EditedModel
from steam_engine.tokens import sentence


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def model_card(model: EditedModel, front: Mapping[str, str], usage: str) -> str:
    """Markdown with front matter for the hub.

    Args:
        model: what was exported.
        front: further lines of the front matter.
        usage: what the format's readers have to know, Markdown.
    """
    loaded = model.loaded
    lines = {**front, **({"license": "apache-2.0"} if loaded.name == NAME else {})}
    head = "".join(f"{key}: {value}\n" for key, value in lines.items())
    rows = "\n".join(
        f"| {e.number} | {_cell(sentence(e.edit.statements[0], e.edit.subject))} **{_cell(e.edit.target)}** "
        f"| {e.created} | {', '.join(str(part.layer) for part in tensors.layers)} | {e.trace.weight_drift:.3f} |"
        for e, tensors in zip(model.entries, model.tensors, strict=True)
    )
    table = (
        f"| # | fact | when (UTC) | layer | change of the matrix |\n|---|---|---|---|---|\n{rows}"
        if rows
        else "No facts were changed."
    )
    return (
        f"---\n{head}tags:\n- knowledge-editing\n---\n\n"
        f"# {loaded.name}, corrected\n\n"
        f"Made from {loaded.name} (fingerprint `{loaded.fingerprint[:16]}`, "
        f"{loaded.dtype_name}) by Amend: the facts below were written into the weights of "
        "MLP down projections with STEAM (Jeong et al., EMNLP 2025, arXiv 2510.10398).\n\n"
        f"## Use\n\n{usage}\n\n"
        f"## Changed facts\n\n{table}\n"
    )


def write_card(model: EditedModel, directory: Path, front: Mapping[str, str], usage: str) -> None:
    """README.md in `directory`; see `model_card`."""
    (directory / "README.md").write_text(model_card(model, front, usage), encoding="utf-8")
