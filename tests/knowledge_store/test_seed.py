"""The shipped seed is large, sound, and quick to open."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from knowledge_store.catalog import SEED_RELATIONS
from knowledge_store.encoder import WEIGHTS_SHA256
from knowledge_store.errors import StoreCorruptError
from knowledge_store.facts import TIER_RANKS, USER_RANK
from knowledge_store.index import text_number
from knowledge_store.seed import ALIASES, FACTS, VECTORS, read_rows, shipped_vectors
from knowledge_store.store import KnowledgeStore, fact_text
from knowledge_store.text import key
from knowledge_store.types import Relation, Tier
from tests.knowledge_store.conftest import WordEncoder

ROWS = list(read_rows(FACTS))
RELATIONS = {relation.id: relation for relation in SEED_RELATIONS}


def test_there_are_many_facts_in_dozens_of_relations_and_the_files_are_small() -> None:
    counts = Counter(row[0] for row in ROWS)
    assert len(ROWS) >= 20_000
    assert sum(path.stat().st_size for path in (FACTS, ALIASES, VECTORS)) < 15_000_000
    assert len(counts) >= 40
    assert min(counts.values()) >= 15
    assert set(counts) == set(RELATIONS), "every relation has facts, every fact's relation exists"


def test_every_row_has_clean_cells_and_a_source() -> None:
    for row in ROWS:
        assert len(row) == 5
        assert row[4] in {str(tier.value) for tier in Tier}
        for cell in row:
            assert cell == cell.strip()
            assert cell.isprintable()
            assert cell


def test_no_fact_is_there_twice_and_single_valued_relations_have_one_object() -> None:
    triples = Counter((relation, key(subject), key(object_)) for relation, subject, object_, *_ in ROWS)
    assert [triple for triple, count in triples.items() if count > 1] == []
    objects = Counter((relation, key(subject)) for relation, subject, *_ in ROWS)
    assert [pair for pair, count in objects.items() if count > 1 and not RELATIONS[pair[0]].many] == []


def test_one_name_has_one_spelling_within_a_type() -> None:
    spellings: dict[tuple[str, str], set[str]] = {}
    for relation_id, subject, object_, *_ in ROWS:
        relation = RELATIONS[relation_id]
        spellings.setdefault((relation.subject_type, key(subject)), set()).add(subject)
        spellings.setdefault((relation.object_type, key(object_)), set()).add(object_)
    assert {name: found for name, found in spellings.items() if len(found) > 1} == {}


@pytest.mark.parametrize("relation", SEED_RELATIONS, ids=lambda relation: relation.id)
def test_templates(relation: Relation) -> None:
    assert len(relation.statements) >= 4
    assert len(relation.questions) >= 4
    everything = (*relation.statements, *relation.questions, *relation.compositions, *relation.patterns)
    assert all(template.count("{}") == 1 for template in (*everything, relation.noun_phrase))
    for kind in (relation.statements, relation.questions, relation.compositions, relation.patterns):
        assert len(set(kind)) == len(kind)
    assert not set(relation.statements) & set(relation.patterns)
    assert all(not template.endswith(("?", ".", " ")) for template in relation.statements)
    assert all(template.endswith("?") for template in (*relation.questions, *relation.compositions))
    # A noun phrase starts in lower case, so it cannot be the start of a question.
    assert all(not template.startswith("{}") for template in relation.compositions)
    assert relation.noun_phrase[0].islower()
    assert relation.wikidata is None or re.fullmatch(r"P[1-9]\d*", relation.wikidata)
    assert relation.inverse is None or RELATIONS[relation.inverse].inverse == relation.id


def test_most_cities_that_are_answers_have_onward_facts() -> None:
    cities = {subject for relation, subject, *_ in ROWS if relation == "city_country"}
    for relation_id in ("capital", "landmark_city", "headquarters", "city_river"):
        column = 1 if relation_id == "city_river" else 2
        answers = {row[column] for row in ROWS if row[0] == relation_id}
        assert len(answers & cities) >= 0.97 * len(answers), sorted(answers - cities)


def test_aliases_belong_to_names_in_the_facts() -> None:
    names = {key(cell) for row in ROWS for cell in row[1:3]}
    unknown = sorted({entity for entity, _ in read_rows(ALIASES) if key(entity) not in names})
    assert unknown == []


def test_shipped_vectors_cover_the_seed_exactly() -> None:
    numbers = {text_number(fact_text(RELATIONS[row[0]], row[1], row[2])) for row in ROWS}
    vectors = shipped_vectors(WEIGHTS_SHA256)
    assert set(vectors) == numbers
    assert shipped_vectors("another encoder") == {}


@pytest.mark.parametrize(
    ("subject", "relation", "object_"),
    [
        ("France", "capital", "Paris"),
        ("Kazakhstan", "capital", "Astana"),
        ("Japan", "currency", "Japanese yen"),
        ("Bulgaria", "currency", "euro"),
        ("Rome", "city_country", "Italy"),
        ("Rome", "city_language", "Italian"),
        ("Rome", "city_river", "the Tiber"),
        ("Rome", "city_landmark", "the Colosseum"),
        ("the Eiffel Tower", "landmark_city", "Paris"),
        ("Hamlet", "author", "William Shakespeare"),
        ("the iPhone", "maker", "Apple"),
        ("gold", "chemical_symbol", "Au"),
        ("uranium", "atomic_number", "92"),
        ("Albert Einstein", "birthplace", "Ulm"),
        ("Switzerland", "calling_code", "+41"),
        ("the United Kingdom", "internet_domain", ".uk"),
        ("Japan", "driving_side", "the left"),
        ("Germany", "name_in_french", "Allemagne"),
        ("Spain", "country_code_3", "ESP"),
        ("iron", "element_group", "group 8"),
        ("uranium", "element_block", "the f-block"),
        ("oganesson", "element_period", "period 7"),
        ("Narita International Airport", "airport_code", "NRT"),
        ("Bavaria", "region_country", "Germany"),
        ("Chicago", "city_us_state", "Illinois"),
        ("Asia/Tokyo", "utc_offset", "UTC+09:00"),
        ("HTTP status 404", "http_status", "Not Found"),
        ("the 1954 Nobel Prize in Literature", "prize_winner", "Ernest Hemingway"),
    ],
)
def test_well_known_facts(seeded: KnowledgeStore, subject: str, relation: str, object_: str) -> None:
    assert [fact.object for fact in seeded.facts(subject, relation)] == [object_]


def test_opening_is_quick_and_loads_no_encoder(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from knowledge_store.store import KnowledgeStore\n"
        "start = time.process_time(); store = KnowledgeStore.open(Path(sys.argv[1]))\n"
        "print(time.process_time() - start)\n"
        "assert not {'torch', 'sentence_transformers', 'transformers'} & set(sys.modules)"
    )
    for _ in range(2):  # a new store, and one that is there already
        done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
        assert float(done.stdout) < 2.0


def test_facts_come_in_the_order_of_their_tiers(seeded: KnowledgeStore) -> None:
    for relation in seeded.relations():
        tiers = [fact.tier for fact in seeded.facts(relation=relation.id, limit=10_000)]
        assert tiers == sorted(tiers)
    about_athens = [fact.tier for fact in seeded.facts(object="Athens")]
    assert about_athens == sorted(about_athens)
    assert set(about_athens) == set(Tier), "otherwise the order says nothing"


@pytest.mark.parametrize("city", ["Athens", "Madrid", "Paris", "London", "Tokyo"])
def test_an_airport_of_a_list_is_no_reference_before_what_is_well_known(seeded: KnowledgeStore, city: str) -> None:
    for relation in ("capital", "landmark_city", "airport_city", "birthplace"):
        found = seeded.references(seeded.relation(relation), city, "nobody")
        assert len(found) == 4
        assert all(fact.tier == Tier.CORE for fact in found)


def test_references_from_lists_fill_up_and_lead_in_relations_that_are_lists(seeded: KnowledgeStore) -> None:
    last = seeded.references(seeded.relation("capital"), "Hanoi", "Norway")[-1]
    assert (last.relation, last.tier) == ("airport_city", Tier.LISTED)
    regions = seeded.references(seeded.relation("region_country"), "Italy", "Bavaria")
    assert regions[0].relation == "region_country"


def test_what_users_add_is_no_better_known_than_a_list(fresh: KnowledgeStore) -> None:
    (fact,) = fresh.add_facts([("the Villa Example", "landmark_city", "Rome")], "me")
    assert fact.tier == Tier.LISTED
    assert fresh.facts(object="Rome", relation="landmark_city")[-1].id == fact.id


def test_neighbouring_countries_are_neighbours_both_ways(seeded: KnowledgeStore) -> None:
    borders = {(row[1], row[2]) for row in ROWS if row[0] == "borders"}
    assert {"Spain", "Belgium", "Italy"} <= {fact.object for fact in seeded.facts("France", "borders")}
    assert borders == {(second, first) for first, second in borders}


def test_a_store_of_an_earlier_release_gets_what_is_new_and_keeps_its_own(tmp_path: Path) -> None:
    encoder = WordEncoder()
    with KnowledgeStore.open(tmp_path, encoder) as store:
        count = len(store.facts(limit=100_000))
        store.add_facts([("Acme", "ceo", "Jane Roe"), ("France", "borders", "Freedonia")], "me")
        store.record_edit(1, "Spain", store.relation("capital"), "Rome")
        store.record_edit(2, "Acme", store.ad_hoc_relation("mascot", None), "a beaver")
    connection = sqlite3.connect(tmp_path / "facts.sqlite")
    with connection:  # as the first release wrote it
        connection.execute("DELETE FROM facts WHERE rank >= ? AND rank < ?", (TIER_RANKS, USER_RANK))
        connection.execute("DELETE FROM templates WHERE relation = 'statehood_year'")
        connection.execute("DELETE FROM relations WHERE id = 'statehood_year'")
        connection.execute("DELETE FROM facts WHERE subject = 'Spain' AND object = 'Madrid' AND relation = 'capital'")
        connection.execute("UPDATE facts SET object = 'Lyon' WHERE subject = 'France' AND relation = 'capital'")
        connection.execute("UPDATE facts SET object_key = 'lyon' WHERE subject = 'France' AND relation = 'capital'")
        connection.execute("ALTER TABLE relations DROP COLUMN wikidata")
        connection.execute("ALTER TABLE facts DROP COLUMN retired")
        connection.execute("DROP TABLE gaps")
        connection.execute("DELETE FROM meta WHERE name = 'seed'")
        connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema'")
    connection.close()
    for _ in range(2):
        with KnowledgeStore.open(tmp_path, encoder) as store:
            assert len(store.facts(limit=100_000)) == count + 3, "the mascot and what was added"
            assert [fact.object for fact in store.facts("Acme", "ceo")] == ["Jane Roe"]
            assert {fact.source for fact in store.facts("France", "borders", "Freedonia")} == {"me"}
            assert [fact.object for fact in store.facts("Texas", "statehood_year")] == ["1845"]
            assert store.relation("capital").wikidata == "P36"
            assert "Spain" in {fact.object for fact in store.facts("France", "borders")}
            assert [fact.object for fact in store.facts("France", "capital")] == ["Lyon"]
            assert [fact.object for fact in store.facts("Spain", "capital")] == ["Rome"], "an edit holds"
            assert store.relation("adhoc:mascot").label == "mascot"
            store.revoke_edit(1)
            assert [fact.object for fact in store.facts("Spain", "capital")] == ["Madrid"]
            store.restore_edit(1)


def test_a_store_of_a_later_release_is_refused(tmp_path: Path) -> None:
    KnowledgeStore.open(tmp_path, WordEncoder()).close()
    connection = sqlite3.connect(tmp_path / "facts.sqlite")
    with connection:
        connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    connection.close()
    with pytest.raises(StoreCorruptError, match="version 999"):
        KnowledgeStore.open(tmp_path, WordEncoder())
