"""What held when: nothing that was known is forgotten, whatever is taught, undone, added or removed."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_store.dates import now
from knowledge_store.errors import ConflictingFactError, InvalidFactError, UnknownFactError
from knowledge_store.store import KnowledgeStore
from tests.knowledge_store.conftest import WordEncoder


def capitals(store: KnowledgeStore, at: str | None = None) -> set[str]:
    return {fact.object for fact in store.facts("France", "capital", at=at)}


def test_what_was_known_then(fresh: KnowledgeStore) -> None:
    start = now()
    capital = fresh.relation("capital")
    edit = fresh.record_edit(7, "France", capital, "Rome")
    taught = now()
    fresh.revoke_edit(7)
    undone = now()
    fresh.restore_edit(7)
    assert [capitals(fresh, at) for at in (start, taught, undone, None)] == [{"Paris"}, {"Rome"}, {"Paris"}, {"Rome"}]
    (paris,) = [fact for fact in fresh.facts("France", "capital", current_only=False) if fact.object == "Paris"]
    assert paris.superseded_by == 7
    assert len(fresh.periods(edit.id)) == 2
    first, second = fresh.periods(paris.id)
    assert first.begin is None
    assert first.end == edit.valid_from, "no moment between the two"
    assert second.end == fresh.periods(edit.id)[1].begin


def test_dates_and_times(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    today = datetime.now(UTC)
    for at in (today, today.date(), today.date().isoformat(), today.isoformat()):
        assert [fact.object for fact in fresh.facts("France", "capital", at=at)] == ["Rome"]
    yesterday = today - timedelta(days=1)
    for at in (yesterday, yesterday.date(), yesterday.replace(tzinfo=None)):
        assert [fact.object for fact in fresh.facts("France", "capital", at=at)] == ["Paris"]
    for text in ("yesterday", "", "2024-13-01", "24-1-1"):
        with pytest.raises(InvalidFactError, match="write it as"):
            fresh.facts("France", at=text)


def test_the_fact_of_a_number_that_is_given_away_stays_in_the_past(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    then = now()
    fresh.record_edit(1, "Spain", fresh.relation("capital"), "Porto")
    assert capitals(fresh) == {"Paris"}
    assert capitals(fresh, then) == {"Rome"}


def test_one_object_conflicts_and_many_add_up(fresh: KnowledgeStore) -> None:
    with pytest.raises(ConflictingFactError, match=r"Paris already.*cannot be Lyon"):
        fresh.add_facts([("Acme", "ceo", "Jane Doe"), ("France", "capital", "Lyon")], "test")
    assert fresh.facts("Acme") == ()
    (kept,) = fresh.add_facts([("France", "capital", "Lyon")], "test", "keep")
    assert kept.object == "Paris"
    before = now()
    (lyon,) = fresh.add_facts([("France", "capital", "Lyon")], "test", "replace")
    assert (lyon.object, lyon.source) == ("Lyon", "test")
    assert capitals(fresh) == {"Lyon"}
    assert capitals(fresh, before) == {"Paris"}
    fresh.add_facts([("France", "language", "Breton")], "test")
    assert {fact.object for fact in fresh.facts("France", "language")} == {"French", "Breton"}


def test_another_name_of_the_object_is_no_conflict(fresh: KnowledgeStore) -> None:
    (fact,) = fresh.add_facts([("New York City", "city_country", "USA")], "test")
    assert fact.object == "the United States"


def test_added_below_an_edit_holds_when_the_edit_is_undone(fresh: KnowledgeStore) -> None:
    fresh.record_edit(1, "France", fresh.relation("capital"), "Rome")
    fresh.add_facts([("France", "capital", "Lyon")], "test", "replace")
    assert capitals(fresh) == {"Rome"}
    fresh.revoke_edit(1)
    assert capitals(fresh) == {"Lyon"}


def test_a_removed_fact_is_gone_now_and_not_planted_again(tmp_path: Path) -> None:
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        (paris,) = store.facts("France", "capital")
        before = now()
        assert store.remove_fact(paris.id).valid_to is not None
        assert capitals(store) == set()
        assert capitals(store, before) == {"Paris"}
        with pytest.raises(UnknownFactError, match="no fact"):
            store.remove_fact(paris.id)
        taught = store.record_edit(3, "France", store.relation("capital"), "Rome")
        with pytest.raises(UnknownFactError, match="undo edit 3"):
            store.remove_fact(taught.id)
        store.revoke_edit(3)
        store._connection.execute("DELETE FROM meta WHERE name = 'seed'")  # as a new release would find it
    with KnowledgeStore.open(tmp_path, WordEncoder()) as store:
        assert capitals(store) == set()
        (again,) = store.add_facts([("France", "capital", "Paris")], "test")
        assert again.id != paris.id
        with pytest.raises(UnknownFactError):
            store.periods(10**9)


PAIRS = st.sampled_from([("France", "capital"), ("France", "language"), ("Acme", "ceo")])
OBJECTS = st.sampled_from(["Rome", "Lyon", "Breton"])
STEPS = st.one_of(
    st.tuples(st.just("record"), st.integers(1, 4), PAIRS, OBJECTS),
    st.tuples(st.sampled_from(["revoke", "restore"]), st.integers(1, 4)),
    st.tuples(st.just("add"), PAIRS, OBJECTS, st.sampled_from(["keep", "replace"])),
    st.tuples(st.just("remove"), PAIRS),
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("template")
    KnowledgeStore.open(directory, WordEncoder()).close()
    return (directory / "facts.sqlite").read_bytes()


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
def test_the_past_never_changes(template: bytes, steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "facts.sqlite").write_bytes(template)
        with KnowledgeStore.open(Path(directory), WordEncoder()) as store:
            _check(store, steps)


def _check(store: KnowledgeStore, steps: list[tuple[object, ...]]) -> None:
    seen: list[tuple[str, set[int]]] = []
    active: dict[int, bool] = {}

    def look(at: str | None = None) -> set[int]:
        return {f.id for name in ("France", "Acme") for f in store.facts(name, at=at, limit=1000)}

    for step in steps:
        match step:
            case ("record", int(number), (str(subject), str(relation)), str(object_)):
                store.record_edit(number, subject, store.relation(relation), object_)
                active[number] = True
            case (("revoke" | "restore") as what, int(number)) if number in active:
                (store.revoke_edit if what == "revoke" else store.restore_edit)(number)
                active[number] = what == "restore"
            case ("add", (str(subject), str(relation)), str(object_), ("keep" | "replace") as policy):
                store.add_facts([(subject, relation, object_)], "test", policy)
            case ("remove", (str(subject), str(relation))):
                for fact in store.facts(subject, relation):
                    if fact.edit_number is None:
                        store.remove_fact(fact.id)
        seen.append((now(), look()))
    for at, ids in seen:
        assert look(at) == ids
    for subject, relation in (("France", "capital"), ("Acme", "ceo")):
        assert len(store.facts(subject, relation)) <= 1, "a single-valued relation has one object"
    holding = {fact.edit_number for name in ("France", "Acme") for fact in store.facts(name, limit=1000)} - {None}
    assert holding <= {number for number, on in active.items() if on}
    for number in active:
        store.revoke_edit(number)
    for name in ("France", "Acme"):
        assert all(fact.edit_number is None for fact in store.facts(name, limit=1000))
