"""Times as the facts file writes them: ISO 8601 in UTC to the microsecond, so that texts compare as times do."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from knowledge_store.errors import InvalidFactError


def stamp(moment: datetime) -> str:
    """Return a moment as text; without a time zone it is taken as UTC."""
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")


def now() -> str:
    """Return the present moment as text."""
    return stamp(datetime.now(UTC))


def moment(when: str | date | datetime, *, end_of_day: bool = False) -> str:
    """Return a date or a time as text. A date alone is its first moment, or its last one.

    Raises InvalidFactError for a text that is not an ISO date or time.
    """
    if isinstance(when, str):
        text = when.strip()
        try:
            when = date.fromisoformat(text) if len(text) <= 10 else datetime.fromisoformat(text)
        except ValueError:
            raise InvalidFactError(f"'{text}' is not a date: write it as 2024-05-31 or 2024-05-31T12:00:00.") from None
    if not isinstance(when, datetime):
        when = datetime.combine(when, time.max if end_of_day else time.min, UTC)
    return stamp(when)
