"""journal: the active edits with their factor pairs in one JSON file, which replays bit for bit on the same base."""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from steam_engine.errors import ExportError, JournalError
from steam_engine.exports.asking import same_answers, same_tokens
from steam_engine.exports.card import write_card
from steam_engine.exports.model import EditedModel
from steam_engine.exports.reading import read_back
from steam_engine.exports.transaction import Checked, Examination
from steam_engine.exports.work import Work
from steam_engine.loading import LoadedModel
from steam_engine.types import FactEdit
from steam_engine.weights import EditedWeights, FactorPair

VERSION = 1
FILE = "journal.json"

_USAGE = """\
`journal.json` holds the edits and their factor pairs: `W += outer(left, right)` for each pair, in order, summed in
fp32 from the weight of the base; left [d_model] and right [d_ff] are little-endian fp32 in base64. Amend replays it:

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


class Edit(_Record):
    """One edit, with what it changed."""

    number: int
    created: str
    edit: FactEdit
    factors: tuple[Factors, ...]


class Exported(_Record):
    """The whole file."""

    kind: Literal["amend-journal"]
    version: int
    base: Base
    edits: tuple[Edit, ...]
    weights: dict[int, str]  # layer -> sha256 of the edited matrix: its bytes, row by row, in the base's dtype


class JournalFile:
    """journal.json, and a model card that says how to replay it."""

    name = "journal"

    def size(self, model: EditedModel) -> int:
        """Base64 of the factors, and some text for every edit."""
        _ = model.base
        pairs = [pair for pairs in model.pairs.values() for pair in pairs]
        if not pairs:
            raise ExportError("There is no edit in the weights, so a journal would be empty. Edit first.")
        factors = sum(pair.left.numel() + pair.right.numel() for pair in pairs)
        return factors * 4 * 4 // 3 + 8192 * len(model.entries)

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
                Factors(layer=part.layer, left=_packed(part.left), right=_packed(part.right)) for part in tensors.layers
            ),
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
    if found.version != VERSION:
        raise JournalError(f"{path} has version {found.version}; this version of Amend reads version {VERSION}.")
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


def _pairs(found: Exported, path: Path, loaded: LoadedModel) -> dict[int, list[FactorPair]]:
    pairs: dict[int, list[FactorPair]] = {}
    arch = loaded.arch
    for edit in found.edits:
        for part in edit.factors:
            try:
                pair = FactorPair(_unpacked(part.left, arch.d_model), _unpacked(part.right, arch.d_ff))
                if not 0 <= part.layer < arch.n_layers:
                    raise ValueError("no such layer")
            except (ValueError, binascii.Error) as error:
                raise JournalError(f"Edit {edit.number} of {path} does not fit the model or is damaged.") from error
            pairs.setdefault(part.layer, []).append(pair)
    return pairs


def digest(weight: torch.Tensor) -> str:
    """sha256 of a matrix's bytes, row by row."""
    plain = weight.detach().cpu().contiguous().view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()


def _packed(vector: torch.Tensor) -> str:
    return base64.b64encode(vector.cpu().numpy().astype("<f4").tobytes()).decode("ascii")


def _unpacked(text: str, length: int) -> torch.Tensor:
    """Raises ValueError or binascii.Error unless it holds `length` numbers."""
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    if values.shape != (length,):
        raise ValueError("another length")
    return torch.from_numpy(values.astype(np.float32))
