"""journal: the active edits with their factor pairs in one JSON file, which replays bit for bit on the same base."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from steam_engine.architecture import Architecture
from steam_engine.errors import ExportError, JournalError
from steam_engine.exports.asking import same_answers, same_tokens
from steam_engine.exports.card import write_card
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work
from steam_engine.journal import EditTensors, LayerTensors, NewEdit
from steam_engine.loading import LoadedModel
from steam_engine.types import EditTrace, FactEdit
from steam_engine.weights import EditedWeights, FactorPair

VERSION = 2
_READABLE = (1, VERSION)  # files of version 1 hold what the weights need, not what later edits need
FILE = "journal.json"

_USAGE = """\
`journal.json` holds the edits, their factor pairs, and the keys that later edits keep in place:
`python app.py import journal.json` takes them into a workspace. `W += outer(left, right)` for each pair, in order,
summed in fp32 from the weight of the base; left [d_model], right [d_ff] and keys [n_keys, d_ff] are little-endian fp32
in base64. It is replayed in Python, without a workspace, by

```python
from pathlib import Path
from steam_engine.exports.journal_file import replay
from steam_engine.loading import load_model

loaded = load_model({model}, dtype="{dtype}")
replay(Path("journal.json"), loaded)  # loaded.model is the edited model now, to the last bit
```"""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Base(_Record):
    """The model that the edits belong to."""

    name: str
    fingerprint: str
    dtype: str
    family: str


class Factors(_Record):
    """One rank-one change of one layer, base64 of little-endian fp32."""

    layer: int
    left: str
    right: str
    keys: str | None = None  # [n_keys, d_ff], row by row; not in version 1


class Edit(_Record):
    """One edit, with what it changed."""

    number: int
    created: str
    edit: FactEdit
    factors: tuple[Factors, ...]
    trace: EditTrace | None = None  # not in version 1


class Exported(_Record):
    """The whole file."""

    kind: Literal["amend-journal"]
    version: int
    base: Base
    edits: tuple[Edit, ...]
    weights: dict[int, str]  # layer -> sha256 of the edited matrix: its bytes, row by row, in the base's dtype

    @property
    def complete(self) -> bool:
        """Whether it holds all that a journal needs."""
        return all(e.trace is not None and all(part.keys is not None for part in e.factors) for e in self.edits)


class JournalFile:
    """journal.json, and a model card that says how to replay it."""

    name = "journal"

    def size(self, model: EditedModel) -> int:
        """Base64 of the factors and keys, and some text for every edit."""
        _ = model.base
        pairs = [pair for pairs in model.pairs.values() for pair in pairs]
        if not pairs:
            raise ExportError("There is no edit in the weights, so a journal would be empty. Edit first.")
        numbers = sum(pair.left.numel() + pair.right.numel() for pair in pairs)
        numbers += sum(part.keys.numel() for tensors in model.tensors for part in tensors.layers)
        return numbers * 4 * 4 // 3 + 8192 * len(model.entries)

    def scratch(self, model: EditedModel) -> int:
        """Next to nothing."""
        return 0

    def write(self, model: EditedModel, directory: Path, name: str, work: Work) -> None:
        """Writes the file and its card."""
        (directory / FILE).write_text(written(model).model_dump_json(indent=1), encoding="utf-8")
        usage = _USAGE.format(model=repr(model.loaded.source or None), dtype=model.loaded.dtype_name)
        write_card(model, directory, {}, usage)

    def check(self, exam: Examination, work: Work) -> Checked:
        """Replayed on the base as it is on the disk it gives the live weights, to the bit, and the same answers."""
        base = exam.model.base
        path = str(Path(base.path) / base.gguf) if base.gguf else base.path
        read = read_back(
            "with_replay", exam.model.loaded, exam.questions, exam.scratch, work,
            model=path, journal=str(exam.copy / FILE), texts=[question.text for question in exam.questions],
        )  # fmt: skip
        same_tokens(exam.questions, exam.live, read)
        same_answers(exam.questions, exam.live, read)
        return Checked("a replay on the base model", read.answers)


def written(model: EditedModel) -> Exported:
    """The model's active edits as they are exported."""
    loaded = model.loaded
    edits = tuple(
        Edit(
            number=entry.number,
            created=entry.created,
            edit=entry.edit,
            factors=tuple(
                Factors(layer=part.layer, left=_packed(part.left), right=_packed(part.right), keys=_packed(part.keys))
                for part in tensors.layers
            ),
            trace=entry.trace,
        )
        for entry, tensors in zip(model.entries, model.tensors, strict=True)
    )
    base = Base(
        name=loaded.name, fingerprint=loaded.fingerprint, dtype=loaded.dtype_name, family=loaded.model.config.model_type
    )
    weights = {layer: digest(model.live(layer)) for layer in sorted(model.pairs)}
    return Exported(kind="amend-journal", version=VERSION, base=base, edits=edits, weights=weights)


def read(path: Path) -> Exported:
    """The file, checked for its form.

    Raises:
        JournalError: it cannot be read, is not such a file, or was made by a newer version.
    """
    try:
        found = Exported.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise JournalError(f"{path} is not an exported journal of this version, or it is damaged.") from error
    if found.version not in _READABLE:
        raise JournalError(f"{path} has version {found.version}; this version of Amend reads versions up to {VERSION}.")
    return found


def replay(path: Path, loaded: LoadedModel) -> None:
    """Installs the edits of an exported journal in a model that has none.

    Args:
        path: the JSON file.
        loaded: the base model, unedited.

    Raises:
        JournalError: the file is damaged, belongs to another base, or gives other weights than it says; the model is
            as before.
    """
    found = read(path)
    base, dtype = found.base, loaded.dtype_name
    if base.name == loaded.name and base.dtype != dtype:
        raise JournalError(
            f"The edits of {path} were made on {base.name} in {base.dtype}, and it is {dtype} now. "
            f"Load it with dtype {base.dtype}."
        )
    if base.fingerprint != loaded.fingerprint:
        raise JournalError(
            f"The edits of {path} were made on another base model ({base.name}, {base.dtype}, "
            f"{base.fingerprint[:12]}), not on {loaded.name} ({dtype}, {loaded.fingerprint[:12]}). Load that one."
        )
    weights = EditedWeights(loaded.arch)
    composed = weights.compose(_pairs(found, path, loaded))
    if {layer: digest(weight) for layer, weight in composed.items()} != found.weights:
        raise JournalError(f"The edits of {path} do not give the weights that it says; it was changed or damaged.")
    weights.install(composed)


def new_edits(found: Exported, path: Path, arch: Architecture) -> list[NewEdit]:
    """The edits of a `complete` file as a journal takes them.

    Raises:
        JournalError: they do not fit the model.
    """
    new = []
    for edit in found.edits:
        assert edit.trace is not None
        layers = []
        for part in edit.factors:
            pair = _pair(edit, part, path, arch)
            try:
                keys = _unpacked(part.keys or "").reshape(-1, arch.d_ff)
            except (ValueError, RuntimeError) as error:
                raise _misfit(edit, path) from error
            layers.append(LayerTensors(part.layer, pair.left, pair.right, keys))
        if not layers:
            raise _misfit(edit, path)
        new.append(NewEdit(edit.edit, edit.trace, EditTensors(tuple(layers))))
    return new


def _pairs(found: Exported, path: Path, loaded: LoadedModel) -> dict[int, list[FactorPair]]:
    pairs: dict[int, list[FactorPair]] = {}
    arch = loaded.arch
    for edit in found.edits:
        for part in edit.factors:
            pairs.setdefault(part.layer, []).append(_pair(edit, part, path, arch))
    return pairs


def _pair(edit: Edit, part: Factors, path: Path, arch: Architecture) -> FactorPair:
    try:
        pair = FactorPair(_unpacked(part.left), _unpacked(part.right))
    except ValueError as error:
        raise _misfit(edit, path) from error
    shapes = (pair.left.shape, pair.right.shape)
    if shapes != ((arch.d_model,), (arch.d_ff,)) or not 0 <= part.layer < arch.n_layers:
        raise _misfit(edit, path)
    return pair


def _misfit(edit: Edit, path: Path) -> JournalError:
    return JournalError(f"Edit {edit.number} of {path} does not fit the model or is damaged.")


def digest(weight: torch.Tensor) -> str:
    """sha256 of a matrix's bytes, row by row."""
    plain = weight.detach().cpu().contiguous().view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()


def _packed(numbers: torch.Tensor) -> str:
    return base64.b64encode(numbers.cpu().contiguous().numpy().astype("<f4").tobytes()).decode("ascii")


def _unpacked(text: str) -> torch.Tensor:
    """All its numbers, in a row. Raises ValueError unless it holds some."""
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    if not values.size:
        raise ValueError("no numbers")
    return torch.from_numpy(values.astype(np.float32))
