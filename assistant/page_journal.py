"""The list of what the model was taught, newest first, with the button that each change can take."""

from __future__ import annotations

from collections.abc import Sequence

from assistant import page_cards as cards
from assistant.page_text import escape
from steam_engine.types import JournalEntry

_STATES = {"active": "● in use", "undone": "○ undone", "replaced": "◌ replaced"}


def journal(entries: Sequence[JournalEntry]) -> str:
    """The journal as HTML; a friendly line while it is empty."""
    if not entries:
        return '<p class="am-empty-journal">Nothing yet. What you correct in the chat is listed here.</p>'
    return f'<ol class="am-journal">{"".join(_row(entry) for entry in reversed(entries))}</ol>'


def _row(entry: JournalEntry) -> str:
    button = {"active": cards.undo_button, "undone": cards.redo_button}.get(entry.state)
    state = _STATES.get(entry.state, entry.state)
    return (
        f'<li class="am-{escape(entry.state)}"><span class="am-number">{entry.number}</span>'
        f'<span class="am-taught">{escape(cards.statement(entry))}<small>{escape(state)}</small></span>'
        f"{button(entry) if button else ''}</li>"
    )
