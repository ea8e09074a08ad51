"""The shipped seed is large, sound, and quick to open."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from knowledge_store.catalog import SEED_RELATIONS
from knowledge_store.encoder import WEIGHTS_SHA256
from knowledge_store.index import text_number
from knowledge_store.seed import ALIASES, FACTS, read_rows, shipped_vectors
from knowledge_store.store import KnowledgeStore, fact_text
from knowledge_store.text import key
from knowledge_store.types import Relation

ROWS = list(read_rows(FACTS))
RELATIONS = {relation.id: relation for relation in SEED_RELATIONS}


def test_there_are_thousands_of_facts_in_dozens_of_relations() -> None:
    counts = Counter(row[0] for row in ROWS)
    assert len(ROWS) >= 6000
    assert len(counts) >= 40
    assert min(counts.values()) >= 15
    assert set(counts) == set(RELATIONS), "every relation has facts, every fact's relation exists"


def test_every_row_has_clean_cells_and_a_source() -> None:
    for row in ROWS:
        assert len(row) == 4
        for cell in row:
            assert cell == cell.strip()
            assert cell.isprintable()
            assert cell


def test_no_fact_is_there_twice_and_single_valued_relations_have_one_object() -> None:
    triples = Counter((relation, key(subject), key(object_)) for relation, subject, object_, _ in ROWS)
    assert [triple for triple, count in triples.items() if count > 1] == []
    objects = Counter((relation, key(subject)) for relation, subject, _, _ in ROWS)
    assert [pair for pair, count in objects.items() if count > 1 and not RELATIONS[pair[0]].many] == []


def test_one_name_has_one_spelling_within_a_type() -> None:
    spellings: dict[tuple[str, str], set[str]] = {}
    for relation_id, subject, object_, _ in ROWS:
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
    assert relation.inverse is None or RELATIONS[relation.inverse].inverse == relation.id


def test_most_cities_that_are_answers_have_onward_facts() -> None:
    cities = {subject for relation, subject, _, _ in ROWS if relation == "city_country"}
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
