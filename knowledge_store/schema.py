"""The facts file: its tables, how it is opened, and how it is filled with the seed on first use.

One SQLite file in WAL mode is the truth; everything else (the vector index) can be rebuilt from it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from knowledge_store.errors import StoreBusyError, StoreCorruptError, StoreUnwritableError
from knowledge_store.text import fold, key
from knowledge_store.types import Relation

FACTS_FILE = "facts.sqlite"
SCHEMA_VERSION = "3"
BUSY_SECONDS = 30.0  # how long to wait for another program that is writing; filling a new file takes about one

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE relations (
    id TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    label TEXT NOT NULL,
    noun_phrase TEXT NOT NULL,
    many INTEGER NOT NULL,
    subject_type TEXT NOT NULL,
    object_type TEXT NOT NULL,
    inverse TEXT,
    wikidata TEXT  -- its property there
);
CREATE TABLE templates (
    relation TEXT NOT NULL REFERENCES relations(id),
    kind TEXT NOT NULL CHECK (kind IN ('statement', 'question', 'composition', 'pattern')),
    position INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (relation, kind, position)
);
CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- A fact of an edit has its number. "revoked": the edit was undone. "superseded_by": the edit that holds
-- instead. "retired": taken out for good (deleted, replaced, or its number was given to another edit); such a fact
-- is never an edit. valid_to is NULL while the fact holds; it is derived from those three.
CREATE TABLE facts (
    id INTEGER PRIMARY KEY,
    subject TEXT NOT NULL,
    subject_key TEXT NOT NULL,
    relation TEXT NOT NULL REFERENCES relations(id),
    object TEXT NOT NULL,
    object_key TEXT NOT NULL,
    source INTEGER NOT NULL REFERENCES sources(id),
    rank INTEGER NOT NULL,  -- prominence: lower is better known; see facts.TIER_RANKS
    edit_number INTEGER UNIQUE,
    revoked INTEGER NOT NULL DEFAULT 0,
    superseded_by INTEGER,
    valid_from TEXT,
    valid_to TEXT,
    retired INTEGER NOT NULL DEFAULT 0
);
-- The times between valid_from and valid_to at which a fact did not hold: from "begin" on, until "end".
CREATE TABLE gaps (
    fact INTEGER NOT NULL REFERENCES facts(id) ON DELETE CASCADE,
    begin TEXT NOT NULL,
    end TEXT NOT NULL
);
CREATE INDEX gaps_by_fact ON gaps (fact);
CREATE INDEX facts_by_subject ON facts (subject_key, relation);
CREATE INDEX facts_by_object ON facts (object_key, relation);
CREATE INDEX facts_by_relation ON facts (relation, rank);
CREATE TABLE aliases (
    entity_key TEXT NOT NULL,
    alias TEXT NOT NULL,
    alias_key TEXT NOT NULL,
    PRIMARY KEY (entity_key, alias)
);
CREATE INDEX aliases_by_key ON aliases (alias_key);
"""

_UPGRADES = {  # what makes a file of each earlier version one of the next version
    "1": ("ALTER TABLE relations ADD COLUMN wikidata TEXT",),
    "2": (
        "ALTER TABLE facts ADD COLUMN retired INTEGER NOT NULL DEFAULT 0",
        "CREATE TABLE gaps (fact INTEGER NOT NULL REFERENCES facts(id) ON DELETE CASCADE, "
        "begin TEXT NOT NULL, end TEXT NOT NULL)",
        "CREATE INDEX gaps_by_fact ON gaps (fact)",
    ),
}


_REFUSED = {
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full",
    sqlite3.SQLITE_READONLY: "cannot be written: it is read-only",
    sqlite3.SQLITE_PERM: "cannot be written: it is not permitted",
    sqlite3.SQLITE_AUTH: "cannot be written: it is not permitted",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or made",
    sqlite3.SQLITE_IOERR: "cannot be written or read: the disk is full or does not work",
}


@contextmanager
def clearly(path: Path) -> Iterator[None]:
    """What goes wrong inside with the facts file `path`, in words that say what to do.

    Raises:
        StoreUnwritableError, StoreBusyError, StoreCorruptError: instead of SQLite's own errors.
    """
    advice = f"free some space and check that {path.parent} can be written"
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the lowest byte is the kind of the error
        if code in _REFUSED:
            raise StoreUnwritableError(f"The facts file {path} {_REFUSED[code]}; {advice}.") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusyError(
                f"Another program keeps the facts file {path} locked; close it there and try again."
            ) from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, sqlite3.OperationalError):
            raise StoreCorruptError(
                f"The facts file {path} is damaged ({error}); move it away to start with a fresh one."
            ) from error
        raise


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the file has been filled; a new one is empty."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is not None


def meta(connection: sqlite3.Connection, name: str) -> str | None:
    """Return what is written down under a name; None also while the file is new."""
    if not has_tables(connection):
        return None
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row["value"])


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait by itself for another program that is doing the same."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def connect(directory: Path) -> sqlite3.Connection:
    """Open (or create) the facts file in `directory`; a new one has no tables yet, an older one is upgraded.

    Raises StoreCorruptError when the file was written by a later version, StoreUnwritableError when there can be no
    such directory; what SQLite refuses is for `clearly`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnwritableError(
            f"The directory of the facts {directory} cannot be made ({error.strerror}); choose another."
        ) from error
    path = directory / FACTS_FILE
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=BUSY_SECONDS)
    connection.row_factory = sqlite3.Row
    try:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if has_tables(connection):
            version = _upgraded(connection)
            if version != SCHEMA_VERSION:
                raise StoreCorruptError(
                    f"The facts file {path} has version {version}, this program needs {SCHEMA_VERSION}; "
                    "move it away to start with a fresh one."
                )
    except BaseException:
        connection.close()
        raise
    return connection


def _upgraded(connection: sqlite3.Connection) -> str:
    """Bring the tables to this version where that is known how, wholly or not at all; return the version then."""
    version = meta(connection, "schema") or "none"
    if version not in _UPGRADES:
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = meta(connection, "schema") or "none"  # another program may have done it meanwhile
        while version in _UPGRADES:
            for statement in _UPGRADES[version]:
                connection.execute(statement)
            version = str(int(version) + 1)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (version,))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return version


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables; the caller holds the transaction, so that a crash leaves an empty file."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (SCHEMA_VERSION,))


def insert_relation(connection: sqlite3.Connection, relation: Relation) -> None:
    """Add a relation with its templates, after all others; one that is there is written anew in its place."""
    connection.execute(
        "INSERT INTO relations (id, position, label, noun_phrase, many, subject_type, object_type, inverse, wikidata) "
        "VALUES (?, (SELECT COALESCE(MAX(position), -1) + 1 FROM relations), ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET label = excluded.label, noun_phrase = excluded.noun_phrase, "
        "many = excluded.many, subject_type = excluded.subject_type, object_type = excluded.object_type, "
        "inverse = excluded.inverse, wikidata = excluded.wikidata",
        (
            relation.id,
            relation.label,
            relation.noun_phrase,
            int(relation.many),
            relation.subject_type,
            relation.object_type,
            relation.inverse,
            relation.wikidata,
        ),
    )
    connection.execute("DELETE FROM templates WHERE relation = ?", (relation.id,))
    for kind, texts in (
        ("statement", relation.statements),
        ("question", relation.questions),
        ("composition", relation.compositions),
        ("pattern", relation.patterns),
    ):
        connection.executemany(
            "INSERT INTO templates VALUES (?, ?, ?, ?)",
            [(relation.id, kind, position, text) for position, text in enumerate(texts)],
        )


def load_relations(connection: sqlite3.Connection) -> dict[str, Relation]:
    """Return all relations by id, in their order."""
    templates: dict[tuple[str, str], list[str]] = {}
    for row in connection.execute("SELECT relation, kind, text FROM templates ORDER BY relation, kind, position"):
        templates.setdefault((row["relation"], row["kind"]), []).append(row["text"])

    def of(relation: str, kind: str) -> tuple[str, ...]:
        return tuple(templates.get((relation, kind), ()))

    return {
        row["id"]: Relation(
            id=row["id"],
            label=row["label"],
            statements=of(row["id"], "statement"),
            questions=of(row["id"], "question"),
            noun_phrase=row["noun_phrase"],
            many=bool(row["many"]),
            subject_type=row["subject_type"],
            object_type=row["object_type"],
            inverse=row["inverse"],
            compositions=of(row["id"], "composition"),
            patterns=of(row["id"], "pattern"),
            wikidata=row["wikidata"],
        )
        for row in connection.execute("SELECT * FROM relations ORDER BY position")
    }


def source_id(connection: sqlite3.Connection, name: str) -> int:
    """Return the id of a source, which is added when it is new."""
    connection.execute("INSERT OR IGNORE INTO sources (name) VALUES (?)", (name,))
    row = connection.execute("SELECT id FROM sources WHERE name = ?", (name,)).fetchone()
    return int(row["id"])


def insert_aliases(connection: sqlite3.Connection, entity: str, aliases: list[str]) -> None:
    """Add other names of an entity, and the plain-letter form of each name that has accents."""
    extra = [fold(name) for name in (entity, *aliases) if not name.isascii() and fold(name) != name]
    if not aliases and not extra:
        return
    connection.executemany(
        "INSERT OR IGNORE INTO aliases VALUES (?, ?, ?)",
        [(key(entity), alias, key(alias)) for alias in dict.fromkeys([*aliases, *extra])],
    )
