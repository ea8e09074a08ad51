"""Whatever goes wrong becomes one clear message, and the details go to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from assistant.events import Event, Failure
from steam_engine.errors import AmendError

_LOG = logging.getLogger(__name__)


def guarded(events: Iterator[Event]) -> Iterator[Event]:
    """The same events; an exception ends them with a `Failure`."""
    try:
        yield from events
    except AmendError as problem:
        yield Failure(str(problem))
    except Exception:
        _LOG.exception("A request failed")
        yield Failure("Amend itself made a mistake; what it was is written in the terminal.")
