"""The journal: the ordered, durable record of edits. It is on disk before an edit is live, and never half written."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save

from steam_engine.errors import JournalError, NothingToUndoError
from steam_engine.types import EditTrace, FactEdit, JournalEntry
from steam_engine.weights import FactorPair

FORMAT = 2
_READABLE = (1, FORMAT)  # in format 1 every edit is in one layer, named once for the whole journal


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    entry: JournalEntry
    factors: str  # sha256 of the factor file


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int
    base_name: str
    base_fingerprint: str
    base_dtype: str
    changes: int
    records: list[_Record]


@dataclass(frozen=True)
class LayerTensors:
    """What an edit leaves in one layer, fp32 on the CPU."""

    layer: int
    left: torch.Tensor  # [d_model]
    right: torch.Tensor  # [d_ff]
    keys: torch.Tensor  # [n_keys, d_ff], which later edits keep in place

    @property
    def pair(self) -> FactorPair:
        """The rank-one change."""
        return FactorPair(self.left, self.right)


@dataclass(frozen=True)
class EditTensors:
    """What an edit leaves for the weights and for later solves, layer by layer."""

    layers: tuple[LayerTensors, ...]

    def in_layer(self, layer: int) -> LayerTensors | None:
        """The edit's part in a layer, if it has one."""
        return next((part for part in self.layers if part.layer == layer), None)


@dataclass(frozen=True)
class NewEdit:
    """An edit that is computed and waits to be recorded."""

    edit: FactEdit
    trace: EditTrace
    tensors: EditTensors


def pairs_by_layer(tensors: Iterable[EditTensors]) -> dict[int, list[FactorPair]]:
    """Factor pairs of some edits by layer, in order."""
    found: dict[int, list[FactorPair]] = {}
    for edit in tensors:
        for part in edit.layers:
            found.setdefault(part.layer, []).append(part.pair)
    return found


def _pack(tensors: EditTensors) -> dict[str, torch.Tensor]:
    return {
        f"{part.layer}.{name}": getattr(part, name).contiguous()
        for part in tensors.layers
        for name in ("left", "right", "keys")
    }


def _unpack(stored: dict[str, torch.Tensor], layer: int) -> EditTensors:
    """Raises KeyError, TypeError or ValueError where names are not as written; `layer` is for files of format 1."""
    parts: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in stored.items():
        where, _, what = name.rpartition(".")
        parts.setdefault(int(where) if where else layer, {})[what] = tensor
    if not parts:
        raise ValueError("no tensors")
    return EditTensors(tuple(LayerTensors(where, **parts[where]) for where in sorted(parts)))


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step that survives a crash: complete before, or complete after. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


class Journal:
    """Entries and their tensors in one directory: journal.json and one factor file an edit.

    Args:
        directory: made if missing.
        base_name, fingerprint, dtype: the base model that the edits belong to.

    Raises:
        JournalError: damaged, made by a newer version, made on another base model, or there can be no such directory.
    """

    def __init__(self, directory: Path, base_name: str, fingerprint: str, dtype: str) -> None:
        self.directory = directory
        self._path = directory / "journal.json"
        self._base = (base_name, fingerprint, dtype)
        self._records: list[_Record] = []
        self._tensors: dict[int, EditTensors] = {}
        self._changes = 0
        try:
            (directory / "factors").mkdir(parents=True, exist_ok=True)
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise JournalError(
                f"The journal cannot be kept in {directory} ({error.strerror}). Make that directory readable and "
                "writable, or choose another --workspace."
            ) from error
        self._read(data)

    def _read(self, data: bytes) -> None:
        name, fingerprint, dtype = self._base
        advice = f"Move {self.directory} away to start afresh, or choose another --workspace."
        try:
            raw = json.loads(data)
            made_by = raw.get("format")
            if made_by == 1:
                raw.pop("layer", None)
            file = TypeAdapter(_File).validate_python(raw) if made_by in _READABLE else None
        except (ValueError, AttributeError) as error:
            raise JournalError(f"The journal {self._path} is damaged and was left untouched. {advice}") from error
        if file is None:
            raise JournalError(
                f"The journal {self._path} has format {made_by}, this version of Amend reads "
                f"formats up to {FORMAT}. {advice}"
            )
        if file.base_name == name and file.base_dtype != dtype:
            raise JournalError(
                f"This workspace's edits were made on {name} in {file.base_dtype}, and it is {dtype} now. "
                f"Start with --dtype {file.base_dtype}, or choose another --workspace."
            )
        if file.base_fingerprint != fingerprint:
            raise JournalError(
                f"This workspace's edits were made on another base model ({file.base_name}, {file.base_dtype}, "
                f"{file.base_fingerprint[:12]}), not on {name} ({dtype}, {fingerprint[:12]}). "
                "Start with that model, or choose another --workspace for this one."
            )
        for record in file.records:
            path = self._factor_path(record.entry.number)
            try:
                data = path.read_bytes()
                if hashlib.sha256(data).hexdigest() != record.factors:
                    raise JournalError(f"The edit file {path} was changed or damaged. {advice}")
                self._tensors[record.entry.number] = _unpack(load(data), record.entry.trace.layer)
            except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
                raise JournalError(f"The edit file {path} cannot be read. {advice}") from error
        self._records, self._changes = file.records, file.changes

    def _factor_path(self, number: int) -> Path:
        return self.directory / "factors" / f"{number:06d}.safetensors"

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries in order."""
        return tuple(record.entry for record in self._records)

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        """The entries whose factor pairs are in the weights, in order."""
        return tuple(entry for entry in self.entries if entry.state == "active")

    def tensors(self, entries: Iterable[JournalEntry]) -> tuple[EditTensors, ...]:
        """Tensors of the given entries."""
        return tuple(self._tensors[entry.number] for entry in entries)

    def same_fact(self, edit: FactEdit) -> tuple[JournalEntry, ...]:
        """Active entries of the same subject and relation."""
        fact = (edit.subject.casefold(), edit.relation)
        return tuple(e for e in self.active if (e.edit.subject.casefold(), e.edit.relation) == fact)

    def _commit(self, records: list[_Record]) -> None:
        name, fingerprint, dtype = self._base
        changes = self._changes + 1
        file = _File(
            format=FORMAT, base_name=name, base_fingerprint=fingerprint, base_dtype=dtype,
            changes=changes, records=records,
        )  # fmt: skip
        try:
            write_atomically(self._path, file.model_dump_json(indent=1).encode())
        except OSError as error:
            raise self._unwritable("journal", error) from error
        self._records, self._changes = records, changes

    def _with_states(self, states: dict[int, JournalEntry]) -> list[_Record]:
        return [_Record(entry=states.get(r.entry.number, r.entry), factors=r.factors) for r in self._records]

    def _replaced(self, entries: Iterable[JournalEntry]) -> dict[int, JournalEntry]:
        return {e.number: replace(e, state="replaced", changed=self._changes + 1) for e in entries}

    def append(self, new: Sequence[NewEdit], created: str) -> tuple[JournalEntry, ...]:
        """Records new active edits, all or none; active edits of the same facts become replaced.

        Args:
            new: edits of different facts.
            created: ISO 8601, UTC.

        Raises:
            JournalError: the disk refused; the journal is as before.
        """
        first = max((e.number for e in self.entries), default=0) + 1
        states: dict[int, JournalEntry] = {}
        records: list[_Record] = []
        try:
            for number, made in enumerate(new, start=first):
                old = self.same_fact(made.edit)
                states |= self._replaced(old)
                replaces = tuple(e.number for e in old)
                entry = JournalEntry(number, made.edit, "active", created, made.trace, replaces, self._changes + 1)
                records.append(_Record(entry=entry, factors=self._write_factors(number, made.tensors)))
            self._commit([*self._with_states(states), *records])
        except JournalError:
            for record in records:
                with contextlib.suppress(OSError):
                    self._factor_path(record.entry.number).unlink(missing_ok=True)
            raise
        self._tensors |= {record.entry.number: made.tensors for record, made in zip(records, new, strict=True)}
        return tuple(record.entry for record in records)

    def _write_factors(self, number: int, tensors: EditTensors) -> str:
        """Writes an edit's tensors; returns the file's sha256."""
        data = save(_pack(tensors))
        try:
            write_atomically(self._factor_path(number), data)
        except OSError as error:
            raise self._unwritable("edit", error) from error
        return hashlib.sha256(data).hexdigest()

    def _unwritable(self, what: str, error: OSError) -> JournalError:
        return JournalError(
            f"The {what} could not be written to {self.directory} ({error.strerror}); nothing has changed. "
            "Free some space there and make it writable, or choose another --workspace."
        )

    def find(self, number: int | None, state: str, doing: str) -> JournalEntry:
        """The entry of that number (default: the last one) if it is in that state.

        Raises:
            NothingToUndoError: there is none; the message says that there is nothing to `doing`.
        """
        candidates = [e for e in self.entries if e.state == state]
        if number is None:
            if not candidates:
                raise NothingToUndoError(f"There is no edit to {doing}.")
            key = (lambda e: e.number) if state == "active" else (lambda e: (e.changed, -e.number))
            return max(candidates, key=key)
        for entry in self.entries:
            if entry.number == number:
                if entry.state != state:
                    raise NothingToUndoError(
                        f"Edit {number} is {entry.state}, so there is nothing to {doing}. See /history."
                    )
                return entry
        raise NothingToUndoError(f"There is no edit {number}. See /history for the numbers.")

    def undo(self, number: int | None = None) -> JournalEntry:
        """Takes an active edit (default: the last one) back; edits it had replaced are active again.

        Raises:
            NothingToUndoError: no such active edit.
            JournalError: the disk refused; the journal is as before.
        """
        entry = replace(self.find(number, "active", "undo"), state="undone", changed=self._changes + 1)
        states = {entry.number: entry}
        for other in self.entries:
            if other.number in entry.replaces and other.state == "replaced":
                states[other.number] = replace(other, state="active", changed=self._changes + 1)
        self._commit(self._with_states(states))
        return entry

    def redo(self, number: int | None = None) -> JournalEntry:
        """Makes an undone edit (default: the one undone last) active; active edits of its fact are replaced.

        Raises:
            NothingToUndoError: no such undone edit.
            JournalError: the disk refused; the journal is as before.
        """
        found = self.find(number, "undone", "redo")
        old = self.same_fact(found.edit)
        entry = replace(found, state="active", replaces=tuple(e.number for e in old), changed=self._changes + 1)
        self._commit(self._with_states({**self._replaced(old), entry.number: entry}))
        return entry
