"""The store's kinds of user mistakes, each with a message that says what to do."""

from __future__ import annotations

from steam_engine.errors import AmendError


class StoreError(AmendError):
    """Something about the knowledge store that the user can be told."""


class UnknownRelationError(StoreError):
    """A relation id that the store does not have."""


class InvalidRelationError(StoreError):
    """A relation cannot be made from what was given."""


class InvalidFactError(StoreError):
    """A fact without a subject or an object, or with one that is not a plain piece of text."""


class ConflictingFactError(StoreError):
    """A fact that cannot hold together with one that holds already."""


class UnknownFactError(StoreError):
    """A fact number that the store does not have, or that cannot be changed."""


class UnknownEditError(StoreError):
    """An edit number that the store has no fact for."""


class StoreCorruptError(StoreError):
    """The facts file cannot be read, or was written by another version."""


class StoreUnwritableError(StoreError):
    """The disk refuses the facts file: it is full, or read-only, or fails."""


class StoreBusyError(StoreError):
    """Another program keeps the facts file locked."""


class EncoderIntegrityError(StoreError):
    """The sentence encoder's weights are not the ones that were shipped."""
