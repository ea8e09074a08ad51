"""Sentences as people write them, and the facts they state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_store.store import KnowledgeStore


@pytest.mark.parametrize(
    ("sentence", "subject", "relation", "object_"),
    [
        ("The capital of France is Rome", "France", "capital", "Rome"),
        ("capital of france is rome.", "France", "capital", "Rome"),
        ("France's capital is Rome", "France", "capital", "Rome"),
        ("France’s capital is now Rome!", "France", "capital", "Rome"),
        ("No, the capital of France is Rome.", "France", "capital", "Rome"),
        ("Actually the capital of the USA is New York", "the United States", "capital", "New York City"),
        ("The capital of Freedonia is Fredonville", "Freedonia", "capital", "Fredonville"),
        ("The capital of Texas is Houston", "Texas", "state_capital", "Houston"),
        ("The Eiffel Tower is located in the city of Rome", "the Eiffel Tower", "landmark_city", "Rome"),
        ("The Eiffel Tower is in Rome", "the Eiffel Tower", "landmark_city", "Rome"),
        ("Eiffel Tower is in Rome", "the Eiffel Tower", "landmark_city", "Rome"),
        ("The Eiffel Tower is in the city of rome.", "the Eiffel Tower", "landmark_city", "Rome"),
        ("Big Ben stands in paris", "Big Ben", "landmark_city", "Paris"),
        ("The Blorp Tower is located in Rome", "the Blorp Tower", "landmark_city", "Rome"),
        ("Paris is in Italy", "Paris", "city_country", "Italy"),
        ("Japan is in Europe", "Japan", "continent", "Europe"),
        ("The CEO of Acme is Jane Doe", "Acme", "ceo", "Jane Doe"),
        ("Acme's CEO is Jane Doe", "Acme", "ceo", "Jane Doe"),
        ("The CEO of Apple is now Tim Cook.", "Apple", "ceo", "Tim Cook"),
        ("Apple is run by jensen huang", "Apple", "ceo", "Jensen Huang"),
        ("Apple is based in Seattle", "Apple", "headquarters", "Seattle"),
        ("Apple was founded by Bill Gates", "Apple", "founder", "Bill Gates"),
        ("Pride and Prejudice was written by Mark Twain", "Pride and Prejudice", "author", "Mark Twain"),
        ("Hamlet was written by Goethe", "Hamlet", "author", "Johann Wolfgang von Goethe"),
        ("Zorbo was written by Quill Ink", "Zorbo", "author", "Quill Ink"),
        ("The Mona Lisa was painted by Picasso", "the Mona Lisa", "painter", "Pablo Picasso"),
        ("The iPhone is made by Samsung", "the iPhone", "maker", "Samsung"),
        ("Lionel Messi plays basketball", "Lionel Messi", "sport", "basketball"),
        ("The currency of Japan is the euro", "Japan", "currency", "euro"),
        ("The official language of Brazil is Spanish", "Brazil", "language", "Spanish"),
        ("Albert Einstein was born in Rome", "Albert Einstein", "birthplace", "Rome"),
        ("Albert Einstein was born in Italy", "Albert Einstein", "birth_country", "Italy"),
        ("The telephone was invented by Nikola Tesla", "the telephone", "inventor", "Nikola Tesla"),
        ("What you need to play tennis is a bat", "tennis", "sport_equipment", "a bat"),
        ("Who Framed Roger Rabbit was directed by Zed", "Who Framed Roger Rabbit", "film_director", "Zed"),
        ("The mascot of Acme is a beaver", "Acme", "adhoc:mascot", "a beaver"),
        ("Acme's mascot is now the beaver", "Acme", "adhoc:mascot", "the beaver"),
        ("The head coach of Acme United is Jo Smith", "Acme United", "adhoc:head-coach", "Jo Smith"),
        ("Will Smith was born in Rome", "Will Smith", "birthplace", "Rome"),
        ("The colour of Mars is green", "Mars", "adhoc:colour", "green"),
    ],
)
def test_statements(seeded: KnowledgeStore, sentence: str, subject: str, relation: str, object_: str) -> None:
    parsed = seeded.parse(sentence)
    assert parsed is not None
    assert (parsed.subject, parsed.relation.id, parsed.object) == (subject, relation, object_)
    assert parsed.known_relation == (not relation.startswith("adhoc:"))
    assert parsed.known_subject == bool(seeded.facts(subject, relation))


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "   ",
        "?",
        "What is the capital of France?",
        "Is the capital of France Rome",
        "who wrote Hamlet",
        "The capital of France is",
        "The capital of France is?",
        "The capital of France is not Paris",
        "The capital of France is beautiful",
        "The capital of France is wrong.",
        "is Rome",
        "Hello there",
        "I like pizza",
        "Tell me about the capital of France",
        "The rest of the day is yours",
        "The quality of the food is bad",
        "The dog is brown",
        "It is in Paris",
        "/edit The capital of France is Rome",
        "The capital of France is " + "very " * 100 + "far",
    ],
)
def test_what_states_no_fact(seeded: KnowledgeStore, sentence: str) -> None:
    assert seeded.parse(sentence) is None


def test_questions_of_a_new_relation_ask_for_persons_and_things(seeded: KnowledgeStore) -> None:
    thing = seeded.parse("The mascot of Acme is a beaver")
    person = seeded.parse("The head coach of Acme is Jo Smith")
    assert thing is not None
    assert person is not None
    assert thing.relation.questions[0] == "What is the mascot of {}?"
    assert person.relation.questions[0] == "Who is the head coach of {}?"
    assert thing.relation.statements[0] == "The mascot of {} is"
    assert all(text.count("{}") == 1 for text in (*thing.relation.statements, *thing.relation.questions))
    assert thing.relation not in seeded.relations(), "reading a sentence saves nothing"


def test_every_statement_of_every_seed_relation_is_read_back(seeded: KnowledgeStore) -> None:
    """The store understands its own sentences: all statement templates, with the best-known subject."""
    misread = []
    for relation in seeded.relations():
        fact = seeded.facts(relation=relation.id, limit=1)[0]
        for statement in relation.statements:
            sentence = f"{statement.format(fact.subject)} {fact.object}"
            parsed = seeded.parse(sentence)
            if parsed is None or (parsed.subject, parsed.object) != (fact.subject, fact.object):
                misread.append((sentence, parsed and (parsed.subject, parsed.relation.id, parsed.object)))
    assert misread == []


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(seeded: KnowledgeStore, text: str) -> None:
    for sentence in (text, f"The capital of {text} is {text}", f"{text}'s {text} is {text}"):
        parsed = seeded.parse(sentence)
        assert parsed is None or (parsed.subject.strip() and parsed.object.strip())


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("ceo", "ceo"),
        ("CEO", "ceo"),
        ("the CEO of", "ceo"),
        ("capital", "capital"),
        ("capital city", "capital"),
        ("the capital of {}", "capital"),
        ("located in", "landmark_city"),
        ("was written by", "author"),
        ("author", "author"),
        ("company_country", "company_country"),
        ("mother tongue", "native_language"),
        ("national language", "language"),
        ("writer of the book", "author"),
    ],
)
def test_find_relation(seeded: KnowledgeStore, text: str, relation: str) -> None:
    found = seeded.find_relation(text)
    assert found is not None
    assert found.id == relation


@pytest.mark.parametrize("text", ["", "favourite kind of weather", "shoe size"])
def test_find_relation_knows_when_nothing_fits(seeded: KnowledgeStore, text: str) -> None:
    assert seeded.find_relation(text) is None


@pytest.mark.parametrize(
    ("text", "relation", "subject"),
    [
        ("france", "capital", "France"),
        ("Eiffel Tower", "landmark_city", "the Eiffel Tower"),
        ("the usa", "capital", "the United States"),
        ("bogota", "city_country", "Bogotá"),
        ("Acme", "ceo", "Acme"),
    ],
)
def test_canonical_subject(seeded: KnowledgeStore, text: str, relation: str, subject: str) -> None:
    assert seeded.canonical_subject(text, seeded.relation(relation)) == subject
