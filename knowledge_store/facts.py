"""Facts in the facts file: found, added, superseded by edits and revived; no vectors, no phrasings.

Which fact of a (subject, relation) holds is never patched step by step: it is derived from which edits are
active, so that undoing edits in any order gives the same result as never having made them. Nothing is forgotten:
what no longer holds keeps the times at which it did.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Literal

from knowledge_store.dates import now
from knowledge_store.errors import ConflictingFactError, InvalidFactError, UnknownEditError, UnknownFactError
from knowledge_store.schema import source_id
from knowledge_store.text import fold, key, without_article
from knowledge_store.types import Fact, Period, Relation, Tier

MAX_NAME = 300  # characters of a subject or an object
TIER_RANKS = 100_000  # a fact's rank is its tier times this, plus its place in the relation
USER_RANK = 1_000_000  # what users add is less known than any fact of the seed
EDIT_SOURCE = "edit"

_SELECT = """
SELECT f.id, f.subject, f.relation, f.object, s.name AS source, f.edit_number, f.valid_from, f.valid_to,
f.superseded_by, f.rank
FROM facts f JOIN sources s ON s.id = f.source JOIN relations r ON r.id = f.relation
"""


OnConflict = Literal["refuse", "keep", "replace"]


class Outcome(Enum):
    """What became of a fact that was to be added."""

    ADDED = "added"
    DUPLICATE = "duplicate"  # it is there already
    CONFLICT = "conflict"  # another object holds, and was kept
    REPLACED = "replaced"  # another object held, and no longer does


def check_name(role: str, text: str) -> str:
    """Return `text` trimmed. Raises InvalidFactError when it is empty, too long or not printable."""
    text = text.strip()
    if not key(text):
        raise InvalidFactError(f"The {role} of a fact cannot be empty: say what it is about.")
    if len(text) > MAX_NAME:
        raise InvalidFactError(f"The {role} of a fact can have {MAX_NAME} characters at most; this has {len(text)}.")
    # Persian and emoji join letters with these two invisible characters.
    if not text.replace("\u200c", "").replace("\u200d", "").isprintable():
        raise InvalidFactError(f"The {role} of a fact must be one line of plain text.")
    return text


class FactTable:
    """Queries and changes on the tables of facts and aliases. The owner of the connection holds the lock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside happen wholly or not at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk makes SQLite roll back by itself
                self._connection.execute("ROLLBACK")
            raise

    # -- looking up -------------------------------------------------------------------------------

    def find(
        self,
        subject: str | None = None,
        relation: str | None = None,
        object: str | None = None,
        *,
        current_only: bool = True,
        at: str | None = None,
        limit: int = 100,
    ) -> tuple[Fact, ...]:
        """Return the facts that fit, best-known first. Names are compared by key and by alias.

        `at` (a moment as `dates` writes it) asks for what held then, whatever `current_only` says.
        """
        conditions: list[str] = []
        values: list[str | int] = []
        for column, name in (("subject_key", subject), ("object_key", object)):
            if name is not None:
                keys = sorted(self.entity_keys(name))
                conditions.append(f"f.{column} IN ({', '.join('?' * len(keys))})")
                values.extend(keys)
        if relation is not None:
            conditions.append("f.relation = ?")
            values.append(relation)
        if at is not None:
            conditions.append(
                "(f.valid_from IS NULL OR f.valid_from <= ?) AND (f.valid_to IS NULL OR f.valid_to > ?) "
                "AND NOT EXISTS (SELECT 1 FROM gaps g WHERE g.fact = f.id AND g.begin <= ? AND g.end > ?)"
            )
            values.extend((at, at, at, at))
        elif current_only:
            conditions.append("f.valid_to IS NULL")
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._connection.execute(f"{_SELECT} {where} ORDER BY f.rank, f.id LIMIT ?", (*values, limit))
        return tuple(_fact(row) for row in rows)

    def by_ids(self, ids: Iterable[int]) -> dict[int, Fact]:
        """Return the facts with these ids."""
        wanted = list(ids)
        rows = self._connection.execute(f"{_SELECT} WHERE f.id IN ({', '.join('?' * len(wanted))})", wanted)
        return {row["id"]: _fact(row) for row in rows}

    def periods(self, id: int) -> tuple[Period, ...]:
        """Return the times at which a fact held, in order. Raises UnknownFactError."""
        row = self._connection.execute("SELECT valid_from, valid_to FROM facts WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise UnknownFactError(f"There is no fact number {id}: look it up by what it says.")
        found = []
        begin = row["valid_from"]
        for gap in self._connection.execute("SELECT begin, end FROM gaps WHERE fact = ? ORDER BY begin", (id,)):
            found.append(Period(begin, gap["begin"]))
            begin = gap["end"]
        return (*found, Period(begin, row["valid_to"]))

    def all_triples(self) -> list[tuple[int, str, str, str]]:
        """Return (id, subject, relation, object) of every fact, also of those that no longer hold."""
        rows = self._connection.execute("SELECT id, subject, relation, object FROM facts ORDER BY id")
        return [(row["id"], row["subject"], row["relation"], row["object"]) for row in rows]

    def count(self) -> int:
        """Return the number of facts, also of those that no longer hold."""
        return int(self._connection.execute("SELECT COUNT(*) FROM facts").fetchone()[0])

    def entity_keys(self, name: str) -> set[str]:
        """Return the keys of everything that `name` may stand for."""
        own = key(name)
        rows = self._connection.execute("SELECT entity_key FROM aliases WHERE alias_key = ?", (own,))
        return {own, *(row["entity_key"] for row in rows)}

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return the other names of an entity, in the order in which they were added."""
        rows = self._connection.execute("SELECT alias FROM aliases WHERE entity_key = ? ORDER BY rowid", (key(name),))
        return tuple(row["alias"] for row in rows)

    def names(self, name: str) -> tuple[str, ...]:
        """Return the ways in which an answer may write a name: without article, aliases, plain letters."""
        plain = without_article(name)
        found = [plain, fold(plain), *(without_article(alias) for alias in self.aliases(name))]
        return tuple(dict.fromkeys(text for text in found if text == plain or len(text) > 2))

    def entity_types(self, name: str) -> dict[str, str]:
        """Return the types of things that have this name, each with the store's spelling of it."""
        keys = sorted(self.entity_keys(name))
        marks = ", ".join("?" * len(keys))
        found: dict[str, str] = {}
        for side in ("subject", "object"):
            rows = self._connection.execute(
                f"SELECT r.{side}_type AS type, f.{side} AS name, MIN(f.rank) FROM facts f JOIN relations r "
                f"ON r.id = f.relation WHERE f.{side}_key IN ({marks}) AND r.{side}_type != 'thing' "
                f"AND f.edit_number IS NULL AND NOT f.retired GROUP BY r.{side}_type",
                keys,
            )
            for row in rows:
                found.setdefault(row["type"], row["name"])
        return found

    def prominent(self, subject_type: str | None, limit: int) -> list[str]:
        """Return the best-known subjects of a type (of any type when None), each once."""
        condition = "" if subject_type is None else "AND r.subject_type = ?"
        values: tuple[str | int, ...] = (limit,) if subject_type is None else (subject_type, limit)
        rows = self._connection.execute(
            "SELECT f.subject FROM facts f JOIN relations r ON r.id = f.relation WHERE "
            f"f.edit_number IS NULL AND f.valid_to IS NULL {condition} GROUP BY f.subject_key "
            "ORDER BY MIN(f.rank), MIN(f.id) LIMIT ?",
            values,
        )
        return [row["subject"] for row in rows]

    # -- changing ---------------------------------------------------------------------------------

    def add(
        self,
        subject: str,
        relation: Relation,
        object: str,
        source: str,
        *,
        on_conflict: OnConflict = "refuse",
        valid_from: str | None = None,
        rank: int = USER_RANK,
    ) -> tuple[Fact, Outcome]:
        """Add a fact that is not an edit; it holds from now on, or from `valid_from`.

        One that is there already is returned as it is. In a single-valued relation another object is a conflict,
        which is refused (ConflictingFactError), or the old fact is kept (and returned), or replaced.
        """
        subject, object = check_name("subject", subject), check_name("object", object)
        subject_key, object_key = key(subject), key(object)
        there = self._connection.execute(
            f"{_SELECT} WHERE f.subject_key = ? AND f.relation = ? AND f.edit_number IS NULL AND NOT f.retired",
            (subject_key, relation.id),
        ).fetchall()
        moment, outcome = now(), Outcome.ADDED
        if there:
            same = {object_key} if relation.many else self.entity_keys(object)
            for row in there:
                if key(row["object"]) in same:
                    return _fact(row), Outcome.DUPLICATE
            if not relation.many:
                old = _fact(there[0])
                if on_conflict == "keep":
                    return old, Outcome.CONFLICT
                if on_conflict == "refuse":
                    raise ConflictingFactError(
                        f"The {relation.label} of {old.subject} is {old.object} already ({old.source}); "
                        f"it cannot be {object} too. Replace it, or leave it."
                    )
                for row in there:
                    self._retire(row["id"], moment)
                outcome = Outcome.REPLACED
        cursor = self._connection.execute(
            "INSERT INTO facts (subject, subject_key, relation, object, object_key, source, rank, valid_from) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                subject,
                subject_key,
                relation.id,
                object,
                object_key,
                source_id(self._connection, source),
                rank,
                valid_from or moment,
            ),
        )
        self._settle(subject_key, relation.id, moment)
        row = self._connection.execute(f"{_SELECT} WHERE f.id = ?", (cursor.lastrowid,)).fetchone()
        return _fact(row), outcome

    def remove(self, id: int) -> Fact:
        """End a fact that is not an edit, and return it; it is kept as one that held.

        Raises UnknownFactError when there is none, or when it is an edit's (which is undone instead).
        """
        row = self._connection.execute(
            "SELECT subject_key, relation, edit_number FROM facts WHERE id = ? AND NOT retired", (id,)
        ).fetchone()
        if row is None:
            raise UnknownFactError(f"There is no fact number {id} that could be removed: look it up by what it says.")
        if row["edit_number"] is not None:
            raise UnknownFactError(f"Fact number {id} was taught: undo edit {row['edit_number']} instead.")
        moment = now()
        self._retire(id, moment)
        self._settle(row["subject_key"], row["relation"], moment)
        return self.by_ids([id])[id]

    def _retire(self, id: int, moment: str) -> None:
        self._connection.execute(
            "UPDATE facts SET retired = 1, edit_number = NULL, valid_to = COALESCE(valid_to, ?) WHERE id = ?",
            (moment, id),
        )

    def record_edit(self, number: int, subject: str, relation: Relation, object: str) -> Fact:
        """Write the fact of an edit; what it contradicts is kept as superseded."""
        subject, object = check_name("subject", subject), check_name("object", object)
        moment = now()
        old = self._edit_row(number)
        if old is not None:
            self._retire(old["id"], moment)
            self._settle(old["subject_key"], old["relation"], moment)
        rank = self._rank_of(key(subject), relation.id)
        self._connection.execute(
            "INSERT INTO facts (subject, subject_key, relation, object, object_key, source, rank, "
            "edit_number, valid_from) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                subject,
                key(subject),
                relation.id,
                object,
                key(object),
                source_id(self._connection, EDIT_SOURCE),
                rank,
                number,
                moment,
            ),
        )
        self._settle(key(subject), relation.id, moment)
        row = self._connection.execute(f"{_SELECT} WHERE f.edit_number = ?", (number,)).fetchone()
        return _fact(row)

    def set_revoked(self, number: int, revoked: bool) -> None:
        """Undo (or redo) the fact of an edit. Raises UnknownEditError when the edit has none."""
        row = self._edit_row(number)
        if row is None:
            raise UnknownEditError(f"The store has no fact of edit {number}: choose one from /history.")
        if bool(row["revoked"]) != revoked:
            self._connection.execute("UPDATE facts SET revoked = ? WHERE edit_number = ?", (int(revoked), number))
            self._settle(row["subject_key"], row["relation"], now())

    def settle(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Derive anew which facts hold of each (subject key, relation)."""
        for subject_key, relation in pairs:
            self._settle(subject_key, relation, now())

    def edits(self) -> Mapping[int, tuple[str, str, str, bool]]:
        """Return (subject, relation, object, revoked) of each edit by number."""
        rows = self._connection.execute(
            "SELECT edit_number, subject, relation, object, revoked FROM facts WHERE edit_number IS NOT NULL"
        )
        return {
            row["edit_number"]: (row["subject"], row["relation"], row["object"], bool(row["revoked"])) for row in rows
        }

    def edited_subjects(self, relation: str) -> set[str]:
        """Return the keys of the subjects whose fact of this relation is an edit now."""
        rows = self._connection.execute(
            "SELECT subject_key FROM facts WHERE relation = ? AND edit_number IS NOT NULL AND valid_to IS NULL",
            (relation,),
        )
        return {row["subject_key"] for row in rows}

    def original(self, subject: str, relation: str) -> tuple[Fact, ...]:
        """Return what held before any edit."""
        rows = self._connection.execute(
            f"{_SELECT} WHERE f.subject_key = ? AND f.relation = ? AND f.edit_number IS NULL "
            "AND NOT f.retired ORDER BY f.rank, f.id",
            (key(subject), relation),
        )
        return tuple(_fact(row) for row in rows)

    def _edit_row(self, number: int) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._connection.execute(
            "SELECT id, subject_key, relation, revoked FROM facts WHERE edit_number = ?", (number,)
        ).fetchone()
        return row

    def _rank_of(self, subject_key: str, relation: str) -> int:
        row = self._connection.execute(
            "SELECT MIN(rank) AS rank FROM facts WHERE subject_key = ? AND relation = ? AND NOT retired",
            (subject_key, relation),
        ).fetchone()
        return USER_RANK if row["rank"] is None else int(row["rank"])

    def _settle(self, subject_key: str, relation: str, moment: str) -> None:
        """Derive which facts of (subject, relation) hold: the newest active edit, alone unless many may."""
        many = bool(self._connection.execute("SELECT many FROM relations WHERE id = ?", (relation,)).fetchone()["many"])
        rows = self._connection.execute(
            "SELECT id, edit_number, revoked, superseded_by, valid_to FROM facts "
            "WHERE subject_key = ? AND relation = ? AND NOT retired",
            (subject_key, relation),
        ).fetchall()
        active = [row["edit_number"] for row in rows if row["edit_number"] is not None and not row["revoked"]]
        winner = max(active) if active and not many else None
        for row in rows:
            superseded = winner if winner is not None and row["edit_number"] != winner else None
            ended = bool(row["revoked"]) or superseded is not None
            valid_to = (row["valid_to"] or moment) if ended else None
            if (superseded, valid_to) == (row["superseded_by"], row["valid_to"]):
                continue
            if valid_to is None and row["valid_to"] is not None:
                self._connection.execute("INSERT INTO gaps VALUES (?, ?, ?)", (row["id"], row["valid_to"], moment))
            self._connection.execute(
                "UPDATE facts SET superseded_by = ?, valid_to = ? WHERE id = ?", (superseded, valid_to, row["id"])
            )


def _fact(row: sqlite3.Row) -> Fact:
    return Fact(
        id=row["id"],
        subject=row["subject"],
        relation=row["relation"],
        object=row["object"],
        source=row["source"],
        edit_number=row["edit_number"],
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        superseded_by=row["superseded_by"],
        tier=min(row["rank"] // TIER_RANKS, Tier.LISTED),
    )
