"""Search by meaning, and an index that agrees with the facts whatever happened to its file."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from knowledge_store.encoder import SentenceEncoder
from knowledge_store.errors import EncoderIntegrityError, InvalidFactError
from knowledge_store.index import INDEX_FILE
from knowledge_store.store import KnowledgeStore
from knowledge_store.vectorstore import FactVectorStore
from tests.knowledge_store.conftest import WordEncoder


@pytest.mark.parametrize(
    ("query", "subject", "object_"),
    [
        ("Which city is the seat of the French government?", "France", "Paris"),
        ("the tall iron tower in the French capital", "the Eiffel Tower", "Paris"),
        ("who came up with Sherlock Holmes", "Sherlock Holmes", "Arthur Conan Doyle"),
        ("boss of Microsoft", "Microsoft", "Satya Nadella"),
        ("money in Japan", "Japan", "Japanese yen"),
        ("the writer of the play about the Danish prince Hamlet", "Hamlet", "William Shakespeare"),
    ],
)
def test_meaning(seeded: KnowledgeStore, query: str, subject: str, object_: str) -> None:
    found = seeded.search(query, k=8)
    assert len(found) == 8
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    assert all(-1.0001 <= f.score <= 1.0001 for f in found)
    assert (subject, object_) in {(f.fact.subject, f.fact.object) for f in found}


def test_search_of_nothing(seeded: KnowledgeStore) -> None:
    assert seeded.search("  ") == ()
    assert seeded.search("Rome", k=0) == ()


def test_search_finds_what_holds_now(fresh: KnowledgeStore) -> None:
    sentence = "The capital of France is Paris."
    assert fresh.search(sentence, 1)[0].fact.object == "Paris"
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    found = [f.fact for f in fresh.search(sentence, 5)]
    assert ("France", "Rome") in {(f.subject, f.object) for f in found}
    assert ("France", "capital", "Paris") not in {(f.subject, f.relation, f.object) for f in found}
    fresh.revoke_edit(1)
    assert fresh.search(sentence, 1)[0].fact.object == "Paris"


def small_store(directory: Path) -> WordEncoder:
    """Make a store whose index is written, and return its encoder with nothing remembered."""
    encoder = WordEncoder()
    with KnowledgeStore.open(directory, encoder) as store:
        store.search("anything")
    encoder.encoded.clear()
    return encoder


def best(directory: Path, encoder: WordEncoder, query: str) -> tuple[str, str]:
    with KnowledgeStore.open(directory, encoder) as store:
        fact = store.search(query, 1)[0].fact
        return fact.subject, fact.object


def test_an_index_that_agrees_is_used_as_it_is(tmp_path: Path) -> None:
    encoder = small_store(tmp_path)
    assert best(tmp_path, encoder, "The capital of Spain is Madrid.") == ("Spain", "Madrid")
    assert encoder.encoded == ["The capital of Spain is Madrid."]


@pytest.mark.parametrize("damage", ["delete", "truncate", "garbage", "flip"])
def test_a_damaged_index_is_built_again(tmp_path: Path, damage: str) -> None:
    encoder = small_store(tmp_path)
    path = tmp_path / INDEX_FILE
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(b"garbage")
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    assert best(tmp_path, encoder, "The capital of Spain is Madrid.") == ("Spain", "Madrid")
    assert len(encoder.encoded) > 5000, "everything was encoded again"
    encoder.encoded.clear()
    assert best(tmp_path, encoder, "The capital of Spain is Madrid.") == ("Spain", "Madrid")
    assert len(encoder.encoded) == 1, "the repaired index was kept"


def test_facts_changed_behind_the_back_of_the_index(tmp_path: Path) -> None:
    encoder = small_store(tmp_path)
    connection = sqlite3.connect(tmp_path / "facts.sqlite")
    with connection:
        connection.execute("DELETE FROM facts WHERE subject = 'Spain' AND relation = 'capital'")
        connection.execute(
            "UPDATE facts SET object = 'Xanadu', object_key = 'xanadu' "
            "WHERE subject = 'Portugal' AND relation = 'capital'"
        )
        connection.execute(
            "INSERT INTO facts (subject, subject_key, relation, object, object_key, source, rank) "
            "VALUES ('Atlantis', 'atlantis', 'capital', 'Poseidonis', 'poseidonis', 1, 1)"
        )
    connection.close()
    with KnowledgeStore.open(tmp_path, encoder) as store:
        assert store.search("The capital of Atlantis is Poseidonis.", 1)[0].fact.subject == "Atlantis"
        assert store.search("The capital of Portugal is Xanadu.", 1)[0].fact.object == "Xanadu"
        assert store.search("The capital of Spain is Madrid.", 1)[0].fact.relation != "capital" or (
            store.search("The capital of Spain is Madrid.", 1)[0].fact.subject != "Spain"
        )
    texts = [text for text in encoder.encoded if text.startswith("The capital of") and text.endswith("s.")]
    assert "The capital of Atlantis is Poseidonis." in texts
    assert len(encoder.encoded) <= 6, "only what was missing was encoded"


def test_a_store_made_by_another_encoder_is_indexed_again(tmp_path: Path) -> None:
    small_store(tmp_path)
    with KnowledgeStore.open(tmp_path) as store:  # the shipped vectors take the place of the word counts
        assert not store.encoder.loaded
    encoder = WordEncoder()
    assert best(tmp_path, encoder, "The capital of Spain is Madrid.") == ("Spain", "Madrid")
    assert len(encoder.encoded) > 5000


def test_weights_that_were_tampered_with_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 1000)
    with pytest.raises(EncoderIntegrityError, match="not the file that was shipped"):
        SentenceEncoder(tmp_path).encode(["hello"])
    shutil.rmtree(tmp_path)
    with pytest.raises(EncoderIntegrityError, match="missing"):
        SentenceEncoder(tmp_path).encode(["hello"])


def test_the_store_works_without_the_encoder_until_a_search(tmp_path: Path) -> None:
    store = KnowledgeStore.open(tmp_path / "store", SentenceEncoder(tmp_path / "nowhere"))
    store.record_edit(1, "France", store.relation("capital"), "Rome")
    assert store.parse("The capital of Spain is Rome") is not None
    with pytest.raises(EncoderIntegrityError):
        store.search("capital")
    assert store.facts("France", "capital")[0].object == "Rome"
    store.close()


def test_langchain_retriever(fresh: KnowledgeStore) -> None:
    vectors = FactVectorStore(fresh)
    ids = vectors.add_texts(
        ["The CEO of Acme is Jane Doe", "ignored"],
        [{}, {"subject": "Acme", "relation": "headquarters", "object": "Rome"}],
    )
    assert {fact.id for fact in fresh.facts("Acme")} == {int(id_) for id_ in ids}
    documents = vectors.as_retriever(search_kwargs={"k": 2}).invoke("The CEO of Acme is Jane Doe.")
    assert documents[0].page_content == "The CEO of Acme is Jane Doe."
    assert documents[0].metadata["object"] == "Jane Doe"
    assert len(documents) == 2
    (_, relevance) = vectors.similarity_search_with_relevance_scores("The CEO of Acme is Jane Doe.", 1)[0]
    assert relevance == pytest.approx(1.0, abs=0.01)
    with pytest.raises(InvalidFactError):
        vectors.add_texts(["good morning"])
