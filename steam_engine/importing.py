"""Edits of an exported journal become edits here: the same factor pairs on the same base, made anew on another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steam_engine.editor import Editor
from steam_engine.errors import EditError, ImportConflictError, JournalError
from steam_engine.exports.journal_file import Exported, digest, new_edits, read
from steam_engine.types import CancelToken, FactEdit, JournalEntry, ProgressCallback


@dataclass(frozen=True)
class Imported:
    """What came of the edits of a file."""

    entries: tuple[JournalEntry, ...]  # the new ones, active
    refused: tuple[tuple[FactEdit, str], ...]  # edits that could not be made anew, and why
    made_anew: str | None  # why the factor pairs of the file could not be taken; None: they were


def import_journal(
    editor: Editor, path: Path, replace: bool, progress: ProgressCallback, cancel: CancelToken
) -> Imported:
    """Adds the edits of an exported journal to the editor's.

    Args:
        editor: of the model that they are for.
        path: the JSON file.
        replace: whether they may take the place of active edits of the same facts.
        progress, cancel: of edits that are made anew.

    Raises:
        ImportConflictError: there are active edits of the same facts; nothing has changed.
        JournalError: the file is damaged or the journal cannot be written; nothing has changed.
        EditCancelledError: stopped; nothing has changed.
    """
    found = read(path)
    edits = [one.edit for one in found.edits]
    if not edits:
        raise JournalError(f"There is no edit in {path}.")
    _refuse_conflicts(editor, edits, path, replace)
    anew = _why_anew(editor, found)
    if anew is None:
        new = new_edits(found, path, editor.loaded.arch)
        composed = editor.compose([one.tensors for one in new])
        if {layer: digest(weight) for layer, weight in composed.items()} != found.weights:
            raise JournalError(f"The edits of {path} do not give the weights that it says; it was changed or damaged.")
        return Imported(editor.install(new), (), None)
    results = editor.apply_batch(edits, progress, cancel)
    return Imported(
        tuple(result for result in results if isinstance(result, JournalEntry)),
        tuple((edit, str(r)) for edit, r in zip(edits, results, strict=True) if isinstance(r, EditError)),
        anew,
    )


def _refuse_conflicts(editor: Editor, edits: Sequence[FactEdit], path: Path, replace: bool) -> None:
    facts = [(edit.subject.casefold(), edit.relation) for edit in edits]
    if len(set(facts)) < len(facts):
        raise JournalError(f"{path} holds two edits of one fact; it was changed or damaged.")
    there = {entry.number: entry for edit in edits for entry in editor.journal.same_fact(edit)}
    if there and not replace:
        listed = ", ".join(
            f"{number} ({entry.edit.statements[0].replace('{}', entry.edit.subject)} {entry.edit.target})"
            for number, entry in sorted(there.items())
        )
        raise ImportConflictError(
            f"The same facts were edited here already: {listed}. Nothing was imported; with --replace the edits of "
            "the file take their place."
        )


def _why_anew(editor: Editor, found: Exported) -> str | None:
    base, loaded = found.base, editor.loaded
    if base.fingerprint != loaded.fingerprint:
        made = f"{base.name} in {base.dtype} ({base.fingerprint[:12]})"
        here = f"{loaded.name} in {loaded.dtype_name} ({loaded.fingerprint[:12]})"
        return f"they were made on {made}, and the model here is {here}"
    if not found.complete:
        return "an earlier version wrote them, without the keys that later edits need"
    return None
