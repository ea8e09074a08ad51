"""From what the store knows and what a person wishes to the engine's `FactEdit`. Knows no weights."""

from __future__ import annotations

from knowledge_store.store import KnowledgeStore
from knowledge_store.types import Fact, Probe, Relation
from steam_engine.text import mentions
from steam_engine.types import ChatExample, FactEdit, Reference

TRAINED_QUESTIONS = 2  # of a relation; its other questions measure
SHORTEST_ALIAS = 4  # characters; shorter ones ("US") are found inside ordinary text ("us")


def filled(template: str, subject: str) -> str:
    """The template with its subject, as the beginning of a sentence."""
    text = template.replace("{}", subject)
    return text[:1].upper() + text[1:]


def sentence(relation: Relation, subject: str, object: str) -> str:
    """A fact as a sentence: "The capital of France is Rome."."""
    text = f"{filled(relation.statements[0], subject)} {object}"
    return text if text.endswith((".", "!", "?")) else text + "."


def edit_sentence(edit: FactEdit) -> str:
    """What an edit teaches, as a sentence."""
    return f"{filled(edit.statements[0], edit.subject)} {edit.target}."


def direct_questions(relation: Relation, subject: str) -> tuple[str, ...]:
    """The questions that an edit is trained on: "What is the capital of France?"."""
    return tuple(filled(question, subject) for question in relation.questions[:TRAINED_QUESTIONS])


def known_objects(store: KnowledgeStore, subject: str, relation: Relation) -> tuple[str, ...]:
    """What the store says now."""
    return tuple(fact.object for fact in store.facts(subject=subject, relation=relation.id))


def brief(store: KnowledgeStore, subject: str, relation: Relation, object: str) -> FactEdit:
    """Everything that the engine needs to know about an edit."""
    known = [name for name in known_objects(store, subject, relation) if name.casefold() != object.casefold()]
    aliases = tuple(name for name in store.aliases(subject) if len(name) >= SHORTEST_ALIAS)
    hops = store.hop_examples(subject, relation, object)
    return FactEdit(
        subject=subject,
        relation=relation.id,
        target=object,
        statements=relation.statements,
        questions=relation.questions[:TRAINED_QUESTIONS],
        old_object=known[0] if known else None,
        aliases=aliases,
        neighbours=store.neighbours(relation, subject, object=object),
        references=tuple(_reference(store, fact) for fact in store.references(relation, object, subject)),
        hop_examples=tuple(_example(store, hop) for hop in hops if mentions(hop.question, (subject, *aliases))),
    )


def _reference(store: KnowledgeStore, fact: Fact) -> Reference:
    relation = store.relation(fact.relation)
    return Reference(fact.subject, relation.statements[0], relation.questions[0], fact.object)


def _example(store: KnowledgeStore, hop: Probe) -> ChatExample:
    """A composed question with a whole sentence for an answer: "The capital of France is in Italy."."""
    first, last = hop.path[0], hop.path[-1]
    phrase = store.relation(first.relation).noun_phrase.replace("{}", first.subject)
    return ChatExample(hop.question, sentence(store.relation(last.relation), phrase, last.object))
