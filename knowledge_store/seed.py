"""The facts that are shipped: read from the package's data folder and put into a new facts file."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knowledge_store.catalog import SEED_RELATIONS
from knowledge_store.schema import create_tables, insert_aliases, insert_relation, source_id
from knowledge_store.text import key

DATA = Path(__file__).parent / "data"
# relation, subject, object, source; in each relation the best-known come first
FACTS = DATA / "seed_facts.tsv"
# entity, alias
ALIASES = DATA / "seed_aliases.tsv"
# numbers [n] of the texts, vectors [n, dimension] in int8, encoder (identity of the one that made them)
VECTORS = DATA / "seed_vectors.npz"


def read_rows(path: Path) -> Iterator[list[str]]:
    """Return the rows of a tab-separated file without its header."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        yield from rows


def plant(connection: sqlite3.Connection) -> None:
    """Create the tables and put relations, facts and aliases into them. The caller holds the transaction."""
    create_tables(connection)
    for relation in SEED_RELATIONS:
        insert_relation(connection, relation)
    sources: dict[str, int] = {}
    ranks: dict[str, int] = {}
    rows = []
    for relation_id, subject, object_, source in read_rows(FACTS):
        if source not in sources:
            sources[source] = source_id(connection, source)
        ranks[relation_id] = ranks.get(relation_id, -1) + 1
        rows.append((subject, key(subject), relation_id, object_, key(object_), sources[source], ranks[relation_id]))
    connection.executemany(
        "INSERT INTO facts (subject, subject_key, relation, object, object_key, source, rank) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    aliases: dict[str, list[str]] = {}
    for entity, alias in read_rows(ALIASES):
        aliases.setdefault(entity, []).append(alias)
    for name in {name for row in rows for name in (row[0], row[2])} | set(aliases):
        insert_aliases(connection, name, aliases.get(name, []))


def shipped_vectors(encoder: str) -> dict[int, NDArray[np.float32]]:
    """Return the unit vector of each seed text by its number; none when another encoder made them."""
    if not VECTORS.is_file():
        return {}
    with np.load(VECTORS, allow_pickle=False) as archive:
        if str(archive["encoder"]) != encoder:
            return {}
        # One byte a number is enough: the direction of a vector changes by less than 0.01 degrees...
        vectors = archive["vectors"].astype(np.float32)  # kept as whole numbers: only directions matter
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return dict(zip(archive["numbers"].tolist(), vectors, strict=True))
