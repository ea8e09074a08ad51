"""The questions that measure an edit, and the neighbours, anchors and hops that it is made from."""

from __future__ import annotations

import random

import pytest

from knowledge_store.store import KnowledgeStore
from knowledge_store.text import contains, key
from knowledge_store.types import Fact, Probe, Relation


def edits(store: KnowledgeStore, count: int) -> list[tuple[Fact, Relation, str]]:
    """Return made-up edits: a known fact with the object of another one."""
    chance = random.Random(7)
    found: list[tuple[Fact, Relation, str]] = []
    while len(found) < count:
        relation = chance.choice(store.relations())
        fact, other = chance.sample(store.facts(relation=relation.id, limit=40), 2)
        if key(fact.object) != key(other.object) and key(fact.subject) != key(other.subject):
            found.append((fact, relation, other.object))
    return found


def test_the_capital_of_france(seeded: KnowledgeStore) -> None:
    capital = seeded.relation("capital")
    probes = seeded.probes("France", capital, "Rome")
    assert [probe.question for probe in probes.of("direct")] == [
        "What is the capital of France?",
        "Which city is the capital of France?",
    ]
    assert all("Rome" in probe.accept for probe in (*probes.of("direct"), *probes.of("paraphrase")))
    assert len(probes.of("paraphrase")) >= 4
    hops = {probe.question: probe.accept for probe in probes.of("multi-hop")}
    assert hops["In which country is the capital of France?"] == ("Italy",)
    assert len(hops) >= 3
    assert 3 <= len(probes.of("locality")) <= 6
    # The continent and the currency are the same for Paris, so they show nothing.
    assert not any({"Europe", "euro"} & set(accept) for accept in hops.values())


def test_hops_from_rome_lead_on(seeded: KnowledgeStore) -> None:
    hops = {fact.relation: fact.object for fact in seeded.hops("Rome")}
    assert hops["city_country"] == "Italy"
    assert hops["city_language"] == "Italian"
    assert hops["city_river"] == "the Tiber"
    assert hops["city_landmark"] == "the Colosseum"


def test_a_ceo_leads_on_to_a_birthplace_and_back_to_a_product(seeded: KnowledgeStore) -> None:
    ceo = seeded.relation("ceo")
    made = (*seeded.probes("Apple", ceo, "Satya Nadella").of("multi-hop"),)
    made += seeded.hop_examples("Apple", ceo, "Satya Nadella")
    questions = {probe.question: probe.accept for probe in made}
    assert "Hyderabad" in questions["In which city was the CEO of Apple born?"]
    assert any("the company that makes" in question for question in questions)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_measured_is_never_trained_on(seeded: KnowledgeStore, seed: int) -> None:
    composed, possible = 0, 0
    starts = {relation.subject_type for relation in seeded.relations() if relation.compositions}
    for fact, relation, object_ in edits(seeded, 100):
        probes = seeded.probes(fact.subject, relation, object_, seed)
        examples = seeded.hop_examples(fact.subject, relation, object_)
        measured = {key(probe.question) for probe in probes.probes if probe.kind != "direct"}
        trained = {key(question.format(fact.subject)) for question in relation.questions[:2]}
        trained |= {key(probe.question) for probe in examples}
        assert not measured & trained
        # Not only other words: no second hop is in both.
        paths = {probe.path for probe in probes.of("multi-hop")}
        assert not paths & {probe.path for probe in examples}
        if relation.object_type in starts:  # a code or a number leads nowhere
            possible += 1
            composed += bool(paths)
    assert possible > 30
    assert composed > 0.75 * possible, "most edits can be measured with more than one step"


def test_no_question_gives_its_answer_away(seeded: KnowledgeStore) -> None:
    for fact, relation, object_ in edits(seeded, 60):
        probes: tuple[Probe, ...] = seeded.probes(fact.subject, relation, object_).probes
        for probe in (*probes, *seeded.hop_examples(fact.subject, relation, object_)):
            assert probe.accept
            assert "{}" not in probe.question
            assert probe.question[0] == probe.question[0].upper() or probe.question[1].isupper()
            if probe.kind in ("multi-hop", "locality"):
                assert not any(contains(probe.question, answer) for answer in probe.accept), probe


def test_multi_hop_answers_tell_the_new_object_from_the_old_one(seeded: KnowledgeStore) -> None:
    for fact, relation, object_ in edits(seeded, 60):
        for probe in seeded.probes(fact.subject, relation, object_).of("multi-hop"):
            first, second = probe.path
            if first.id != 0:  # a step that arrives at the edited fact: its answer is the new object itself
                continue
            old = seeded.facts(fact.object, second.relation)
            assert not {key(name) for name in probe.accept} & {key(other.object) for other in old}


def test_locality_asks_about_facts_that_stay(seeded: KnowledgeStore) -> None:
    for fact, relation, object_ in edits(seeded, 40):
        for probe in seeded.probes(fact.subject, relation, object_, seed=3).of("locality"):
            (stays,) = probe.path
            assert (key(stays.subject), stays.relation) != (key(fact.subject), relation.id)
            assert any(contains(stays.object, answer) for answer in probe.accept)
            assert not any(contains(answer, object_) for answer in probe.accept)


def test_probes_are_the_same_every_time_and_vary_with_the_seed(seeded: KnowledgeStore) -> None:
    capital = seeded.relation("capital")
    assert seeded.probes("France", capital, "Rome") == seeded.probes("France", capital, "Rome")
    others = {seeded.probes("France", capital, "Rome", seed).of("locality") for seed in range(6)}
    assert len(others) > 1


def test_accepted_answers_have_other_names_but_no_tiny_ones(seeded: KnowledgeStore) -> None:
    accept = seeded.probes("Toyota", seeded.relation("company_country"), "the United States").of("direct")[0].accept
    assert {"United States", "USA", "America"} <= set(accept)
    assert "US" not in accept, "it would be found in other words"


def test_neighbours_are_well_known_and_never_have_the_old_or_the_new_object(seeded: KnowledgeStore) -> None:
    capital = seeded.relation("capital")
    names = seeded.neighbours(capital, "France", object="Rome")
    assert len(names) == 15
    assert names[:3] == ("the United States", "the United Kingdom", "Germany")
    assert not {"France", "Italy"} & set(names)
    currency = seeded.relation("currency")
    euro_lands = {fact.subject for fact in seeded.facts(relation="currency", object="euro")}
    assert not euro_lands & set(seeded.neighbours(currency, "France"))


def test_a_new_relation_borrows_neighbours_of_the_same_kind(seeded: KnowledgeStore) -> None:
    mascot = seeded.parse("The mascot of France is a rooster")
    assert mascot is not None
    names = seeded.neighbours(mascot.relation, "France", limit=8)
    assert len(names) == 8
    assert "Germany" in names
    assert "France" not in names
    assert len(seeded.neighbours(mascot.relation, "Acme", limit=8)) == 8


def test_references_have_the_object_already(seeded: KnowledgeStore) -> None:
    capital = seeded.relation("capital")
    found = seeded.references(capital, "Rome", "France")
    assert found[0].subject == "Italy"
    assert found[0].relation == "capital"
    assert {fact.object for fact in found} == {"Rome"}
    assert len(found) == 4
    assert len(seeded.references(capital, "Rome", "France", limit=6)) == 6
    assert len({fact.relation for fact in found}) >= 2
    assert all(fact.subject != "Italy" for fact in seeded.references(capital, "rome", "Italy"))
    assert seeded.references(capital, "Nowhereville", "France") == ()


def test_conflicts(seeded: KnowledgeStore) -> None:
    assert [f.object for f in seeded.conflicts("france", seeded.relation("capital"), "Rome")] == ["Paris"]
    assert seeded.conflicts("France", seeded.relation("capital"), "paris") == ()
    assert seeded.conflicts("Switzerland", seeded.relation("language"), "Klingon") == ()
    assert seeded.conflicts("Acme", seeded.relation("ceo"), "Jane Doe") == ()
