"""The facts that are shipped: read from the package's data folder and put into a new facts file."""

from __future__ import annotations

import csv
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knowledge_store.catalog import SEED_RELATIONS
from knowledge_store.facts import TIER_RANKS
from knowledge_store.schema import create_tables, has_tables, insert_aliases, insert_relation, source_id
from knowledge_store.text import key

DATA = Path(__file__).parent / "data"
# relation, subject, object, source, tier (a number of `Tier`); in each tier of a relation the best-known come first
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


def digest() -> str:
    """Return what tells this seed from that of another release."""
    content = hashlib.sha256(repr(SEED_RELATIONS).encode())
    for path in (FACTS, ALIASES):
        content.update(path.read_bytes())
    return content.hexdigest()


def plant(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Put relations, facts and aliases into the tables (created here if need be), beside what is there already.

    A facts file that was filled by an earlier release gets what is new; where it has another object for a
    single-valued relation, it keeps that. The caller holds the transaction.
    Returns (subject key, relation) of what was added beside older facts.
    """
    if not has_tables(connection):
        create_tables(connection)
    many = {relation.id: relation.many for relation in SEED_RELATIONS}
    for relation in SEED_RELATIONS:
        insert_relation(connection, relation)
    there: dict[tuple[str, str], set[str]] = {}
    edited: set[tuple[str, str]] = set()
    for row in connection.execute("SELECT subject_key, relation, object_key, edit_number FROM facts"):
        pair = (row["subject_key"], row["relation"])
        if row["edit_number"] is None:
            there.setdefault(pair, set()).add(row["object_key"])
        else:
            edited.add(pair)
    keys: dict[str, str] = {}
    sources: dict[str, int] = {}
    ranks: dict[str, int] = {}
    rows = []
    for relation_id, subject, object_, source, tier in read_rows(FACTS):
        for name in (subject, object_):
            if name not in keys:
                keys[name] = key(name)
        if source not in sources:
            sources[source] = source_id(connection, source)
        ranks[relation_id] = ranks.get(relation_id, -1) + 1
        known = there.get((keys[subject], relation_id))
        if known and (not many[relation_id] or keys[object_] in known):
            continue
        rank = int(tier) * TIER_RANKS + ranks[relation_id]
        rows.append((subject, keys[subject], relation_id, object_, keys[object_], sources[source], rank))
    connection.executemany(
        "INSERT INTO facts (subject, subject_key, relation, object, object_key, source, rank) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    aliases: dict[str, list[str]] = {}
    for entity, alias in read_rows(ALIASES):
        aliases.setdefault(entity, []).append(alias)
    for name in dict.fromkeys([*keys, *aliases]):
        insert_aliases(connection, name, aliases.get(name, []))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('seed', ?)", (digest(),))
    return sorted({(row[1], row[2]) for row in rows} & edited)


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
