"""What can be asked without changing anything, as tables: the journal, the known facts, the commands."""

from __future__ import annotations

from collections.abc import Sequence

from assistant import commands
from assistant.briefing import edit_sentence, sentence
from assistant.events import Notice
from knowledge_store.store import KnowledgeStore
from steam_engine.types import JournalEntry

FACTS_SHOWN = 12


def history(entries: Sequence[JournalEntry]) -> Notice:
    """All edits, oldest first."""
    if not entries:
        return Notice("No edits yet. Teach the model something: /edit The capital of France is Rome")
    rows = tuple(
        (
            str(entry.number),
            edit_sentence(entry.edit),
            entry.state,
            entry.created.replace("T", " ")[:16],
            f"{entry.trace.seconds:.1f} s",
        )
        for entry in entries
    )
    return Notice("Edits, oldest first:", ("number", "fact", "state", "made (UTC)", "took"), rows)


def facts(store: KnowledgeStore, query: str) -> Notice:
    """The facts that hold and are nearest in meaning."""
    found = store.search(query, FACTS_SHOWN)
    if not found:
        return Notice(f"No known fact is near '{query}'.")
    rows = tuple(
        (
            sentence(store.relation(near.fact.relation), near.fact.subject, near.fact.object),
            near.fact.source,
            f"{near.score:.2f}",
        )
        for near in found
    )
    return Notice(f"Known facts nearest to '{query}':", ("fact", "source", "nearness"), rows)


def help_text() -> Notice:
    """All commands."""
    return Notice("Say anything to talk to the model. Commands:", ("command", "what it does"), commands.HELP)
