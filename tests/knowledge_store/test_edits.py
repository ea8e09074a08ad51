"""Edits supersede facts without losing them, and can be undone in any order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from knowledge_store import schema
from knowledge_store.errors import (
    InvalidFactError,
    InvalidRelationError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnwritableError,
    UnknownEditError,
    UnknownRelationError,
)
from knowledge_store.store import KnowledgeStore
from tests.disk import file_limit
from tests.knowledge_store.conftest import WordEncoder


def objects(store: KnowledgeStore, subject: str = "France", relation: str = "capital") -> list[str]:
    return [fact.object for fact in store.facts(subject, relation)]


def test_an_edit_supersedes_and_undo_revives(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    fact = fresh.record_edit(1, "France", capital, "Rome")
    assert (fact.edit_number, fact.source, fact.valid_to) == (1, "edit", None)
    assert fact.valid_from is not None
    assert objects(fresh) == ["Rome"]
    kept = {f.object: f.valid_to for f in fresh.facts("France", "capital", current_only=False)}
    assert kept["Paris"] is not None
    assert kept["Rome"] is None
    fresh.revoke_edit(1)
    assert objects(fresh) == ["Paris"]
    fresh.restore_edit(1)
    assert objects(fresh) == ["Rome"]


def test_edits_of_one_fact_can_be_undone_in_any_order(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    fresh.record_edit(1, "France", capital, "Rome")
    fresh.record_edit(2, "france", capital, "Berlin")
    assert objects(fresh) == ["Berlin"]
    fresh.revoke_edit(1)
    assert objects(fresh) == ["Berlin"]
    fresh.revoke_edit(2)
    assert objects(fresh) == ["Paris"]
    fresh.restore_edit(1)
    assert objects(fresh) == ["Rome"]
    fresh.restore_edit(2)
    assert objects(fresh) == ["Berlin"]


def test_an_edit_of_a_many_valued_relation_adds(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "Switzerland", fresh.relation("language"), "Klingon")
    assert set(objects(fresh, "Switzerland", "language")) == {
        "German",
        "French",
        "Italian",
        "Romansh",
        "Klingon",
    }
    fresh.revoke_edit(1)
    assert "Klingon" not in objects(fresh, "Switzerland", "language")


def test_recording_a_number_again_replaces_its_fact(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    fresh.record_edit(1, "Apple", fresh.relation("ceo"), "Jane Doe")
    assert objects(fresh) == ["Paris"]
    assert objects(fresh, "Apple", "ceo") == ["Jane Doe"]


def test_edits_survive_a_restart(tmp_path: Path) -> None:
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        store.record_edit(1, "France", store.relation("capital"), "Rome")
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        assert objects(store) == ["Rome"]


def test_sync_makes_the_edits_those_of_the_journal(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    fresh.record_edit(1, "France", capital, "Rome")
    fresh.record_edit(2, "Spain", capital, "Lisbon")
    fresh.sync_edits({2: ("Spain", "capital", "Porto"), 5: ("Acme", "adhoc:mascot", "a beaver")})
    assert objects(fresh) == ["Paris"]
    assert objects(fresh, "Spain") == ["Porto"]
    assert objects(fresh, "Acme", "adhoc:mascot") == ["a beaver"]
    fresh.sync_edits({1: ("France", "capital", "Rome")})
    assert objects(fresh) == ["Rome"]
    assert objects(fresh, "Spain") == ["Madrid"]
    assert objects(fresh, "Acme", "adhoc:mascot") == []
    fresh.sync_edits({})
    assert objects(fresh) == ["Paris"]


def test_sync_with_an_unknown_relation_changes_nothing(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    with pytest.raises(UnknownRelationError):
        fresh.sync_edits({2: ("Spain", "no_such_relation", "Lisbon")})
    assert objects(fresh) == ["Rome"]


def test_edited_facts_are_neither_neighbours_nor_anchors(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    assert "Germany" in fresh.neighbours(capital, "France")
    fresh.record_edit(1, "Germany", capital, "Rome")
    assert "Germany" not in fresh.neighbours(capital, "France")
    assert "Germany" not in {fact.subject for fact in fresh.references(capital, "Rome", "France")}


def test_probes_are_the_same_before_and_after_the_edit_is_recorded(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    before = fresh.probes("France", capital, "Rome")
    fresh.record_edit(1, "France", capital, "Rome")
    assert fresh.probes("France", capital, "Rome") == before


@pytest.mark.parametrize(("subject", "object_"), [("", "Rome"), ("France", " "), ("France", "a\nb"), ("x" * 301, "y")])
def test_a_fact_needs_plain_names(fresh: KnowledgeStore, subject: str, object_: str) -> None:
    with pytest.raises(InvalidFactError):
        fresh.record_edit(1, subject, fresh.relation("capital"), object_)
    assert objects(fresh) == ["Paris"]


def test_unknown_numbers_and_relations_are_refused(fresh: KnowledgeStore) -> None:
    with pytest.raises(UnknownEditError, match="edit 9"):
        fresh.revoke_edit(9)
    with pytest.raises(UnknownRelationError, match="nonsense"):
        fresh.relation("nonsense")


def test_letters_that_need_joiners_are_plain_names(fresh: KnowledgeStore) -> None:
    name = "\u062a\u0647\u0631\u0627\u0646\u200c\u0646\u0648"
    assert fresh.record_edit(1, "Iran", fresh.relation("capital"), name).object == name


def test_ad_hoc_relations_are_saved_with_their_first_edit_and_stay(tmp_path: Path) -> None:
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        count = len(store.relations())
        mascot = store.ad_hoc_relation("mascot", None)
        assert store.ad_hoc_relation("the Mascot", None).id == mascot.id
        assert store.ad_hoc_relation("capital", None).id == "capital"
        lives = store.ad_hoc_relation(None, "{} lives in")
        hymn, flower = "\u0433\u0438\u043c\u043d", "\u0446\u0432\u0435\u0442\u043e\u043a"
        assert store.ad_hoc_relation(hymn, None).id != store.ad_hoc_relation(flower, None).id
        assert lives.statements[0] == "{} lives in"
        assert len(store.relations()) == count
        store.record_edit(1, "Acme", mascot, "a beaver")
        store.record_edit(2, "Ada", lives, "Rome")
        parsed = store.parse("The mascot of Bcme is an owl")
        assert parsed is not None
        assert parsed.known_relation
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        assert store.relation(mascot.id) == mascot
        assert store.relation(lives.id) == lives
        assert [fact.object for fact in store.facts("acme", mascot.id)] == ["a beaver"]


@pytest.mark.parametrize(
    ("noun", "statement"),
    [
        (None, None),
        ("", ""),
        ("??", None),
        (None, "{} and {}"),
        (None, "{}"),
        ("x" * 80, None),
        ("is", None),
        ("the of", None),
    ],
)
def test_nonsense_makes_no_relation(fresh: KnowledgeStore, noun: str | None, statement: str | None) -> None:
    count = len(fresh.relations())
    with pytest.raises(InvalidRelationError):
        fresh.ad_hoc_relation(noun, statement)
    assert len(fresh.relations()) == count


def test_adding_facts_is_all_or_nothing(fresh: KnowledgeStore) -> None:
    with pytest.raises(UnknownRelationError):
        fresh.add_facts([("Acme", "ceo", "Jane Doe"), ("Acme", "nonsense", "x")], "test")
    assert fresh.facts("Acme") == ()
    (fact,) = fresh.add_facts([("Acme", "ceo", "Jane Doe")], "test")
    assert fresh.facts("Acme") == (fact,)
    assert fresh.add_facts([("acme", "ceo", "jane doe")], "other") == (fact,), "no fact is kept twice"


def test_a_file_that_is_not_a_store_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "facts.sqlite"
    path.write_bytes(b"these are not the facts you are looking for" * 100)
    with pytest.raises(StoreCorruptError, match="move it away"):
        KnowledgeStore.open(tmp_path, WordEncoder())
    assert path.read_bytes().startswith(b"these are not")


def test_a_full_disk_is_told_in_words_and_changes_nothing(fresh: KnowledgeStore) -> None:
    capital = fresh.relation("capital")
    fresh.record_edit(1, "France", capital, "Rome")
    with file_limit(0), pytest.raises(StoreUnwritableError, match=r"cannot be written.*free some space"):
        fresh.record_edit(2, "France", capital, "Oslo")
    assert objects(fresh) == ["Rome"]
    fresh.record_edit(2, "France", capital, "Oslo")
    assert objects(fresh) == ["Oslo"], "the next one works when there is space again"


def test_a_new_store_on_a_full_disk_is_refused_in_words(tmp_path: Path) -> None:
    with file_limit(100_000), pytest.raises(StoreUnwritableError, match=r"cannot be written.*free some space"):
        KnowledgeStore.open(tmp_path / "full", WordEncoder())
    with KnowledgeStore.open(tmp_path / "full", WordEncoder()) as store:
        assert objects(store) == ["Paris"]


def test_an_index_that_cannot_be_kept_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store, file_limit(3_000_000):
        found = store.search("the capital of France")
    assert found
    assert "could not be kept" in caplog.text
    assert not list(tmp_path.glob("*.tmp"))
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        assert store.search("the capital of France") == found


def test_a_file_that_another_program_locks_is_told_in_words(
    fresh: KnowledgeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.1)
    other = schema.connect(tmp_path / "store")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="try again"):
        KnowledgeStore.open(tmp_path / "store", WordEncoder())
    other.execute("ROLLBACK")
    other.close()


def test_damage_that_is_met_later_is_told_in_words(tmp_path: Path) -> None:
    KnowledgeStore.open(tmp_path, WordEncoder()).close()
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        path = tmp_path / "facts.sqlite"
        path.write_bytes(path.read_bytes()[:4096] + b"x" * (path.stat().st_size - 4096))
        with pytest.raises(StoreCorruptError, match="move it away"):
            store.facts(limit=100_000)


def test_a_new_store_can_be_opened_by_several_at_once(tmp_path: Path) -> None:
    counts: list[int] = []

    def open_and_count() -> None:
        with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
            counts.append(len(store.facts(relation="capital", limit=1000)))

    threads = [threading.Thread(target=open_and_count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 4
    assert len(set(counts)) == 1
    assert counts[0] > 180
