"""Conversations with the assistant, on a scripted model and a store in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from assistant import events as ev
from assistant.assistant import Assistant
from assistant.conversation import Conversation, Message
from assistant.errors import AssistantError
from steam_engine.errors import EditError
from tests.assistant.fakes import FakeHost, FakeStore

ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "Which city is France's capital?": "Paris.",
    "What is the capital of Germany?": "Berlin.",
    "What is the capital of Italy?": "It is Milan.",
    "What is the capital of Rome City?": "Rome City has no capital.",
}


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(ANSWERS)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def assistant(host: FakeHost, store: FakeStore, tmp_path: Path) -> Assistant:
    return Assistant(host, store, tmp_path / "exports")


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()


def told(assistant: Assistant, conversation: Conversation, text: str) -> list[ev.Event]:
    return list(assistant.respond(conversation, text))


def kinds(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


# -- replies ---------------------------------------------------------------------------------------


def test_a_reply_is_streamed_and_remembered(assistant, host, conversation) -> None:
    host.pieces = ["Hello", " there", "."]
    events = told(assistant, conversation, "Hi!")
    assert [e.text for e in events[:-1]] == ["Hello", " there", "."]
    assert (events[-1].text, events[-1].tokens) == ("Hello there.", 3)
    host.pieces = []
    told(assistant, conversation, "And now?")
    assert host.seen[-1] == (
        Message("user", "Hi!"),
        Message("assistant", "Hello there."),
        Message("user", "And now?"),
    )


def test_a_stopped_reply_keeps_what_was_said(assistant, host, conversation) -> None:
    host.pieces = ["One", " two", " three"]
    cancel = threading.Event()
    events = []
    for event in assistant.respond(conversation, "Count!", cancel):
        events.append(event)
        cancel.set()
    assert kinds(events) == ["TextPiece", "ReplyDone"]
    assert [turn.text for turn in conversation.turns] == ["Count!", "One"]


def test_a_front_end_that_goes_away_ends_the_reply(assistant, host, conversation) -> None:
    host.pieces = ["One", " two", " three"]
    reply = assistant.respond(conversation, "Count!")
    next(reply)
    reply.close()
    assert host.closed == 1
    assert conversation.turns[1].text == "One"


def test_a_reply_without_words_leaves_no_turn(assistant, host, conversation) -> None:
    host.pieces = [" "]
    assert told(assistant, conversation, "Hm?")[-1].text == ""
    assert conversation.turns == []


# -- proposals -------------------------------------------------------------------------------------


def test_a_sentence_becomes_a_proposal_and_changes_nothing(assistant, host, store, conversation) -> None:
    events = told(assistant, conversation, "/edit The capital of france is rome.")
    proposal = events[0].proposal
    assert kinds(events) == ["ProposalReady"]
    assert proposal.statement == "The capital of France is Rome."
    assert (proposal.subject, proposal.relation.id, proposal.object) == ("France", "capital", "Rome")
    assert proposal.question == "What is the capital of France?"
    assert proposal.old_answer == "The capital of France is Paris."
    assert proposal.known_object == "Paris"
    assert proposal.conflicts == ("The capital of France is Paris.",)
    assert proposal.anchors == ("The capital of Italy is Rome.",)
    assert proposal.neighbours == ("Germany",)
    assert proposal.warning is None
    assert host.entries == ()
    assert store.edited == {}
    assert conversation.turns == []


def test_parts_and_their_sentence_are_the_same_edit(assistant, conversation) -> None:
    one = told(assistant, conversation, "/edit France | capital | Rome")[0].proposal
    other = told(assistant, conversation, "/edit The capital of France is Rome")[0].proposal
    assert (one.statement, one.relation, one.anchors) == (other.statement, other.relation, other.anchors)
    assert one.id != other.id


def test_an_unknown_relation_is_kept_when_an_edit_is_made_with_it(assistant, store, conversation) -> None:
    before = store.relations()
    for text in ("/edit The mascot of Oxford is Bertie", "/edit Oxford | mascot | Bertie"):
        proposal = told(assistant, conversation, text)[0].proposal
        assert proposal.statement == "The mascot of Oxford is Bertie."
        assert proposal.relation.label == "mascot"
        again = assistant.propose("Cambridge", proposal.relation, "Tim")
        assert again.statement == "The mascot of Cambridge is Tim."
        told(assistant, conversation, "/cancel")
        assert store.relations() == before
    told(assistant, conversation, "/edit The mascot of Oxford is Bertie")
    told(assistant, conversation, "/apply")
    assert [relation.label for relation in store.relations()[len(before) :]] == ["mascot"]


def test_a_subject_that_holds_the_object_is_not_taken_for_the_answer(assistant, conversation) -> None:
    assert kinds(told(assistant, conversation, "/edit Rome City | capital | Rome")) == ["ProposalReady"]


@pytest.mark.parametrize(
    ("subject", "relation", "object", "says"),
    [
        ("Italy", "capital", "a town of seven words in Latium", "short name"),
        ("Belgium", "language", "German", "several answers"),
        ("Narnia", "capital", "Rome", "spelling"),
        ("Narnia", "capital", "Narnia", "the same"),
    ],
)
def test_doubtful_edits_carry_a_warning(assistant, subject: str, relation: str, object: str, says: str) -> None:
    assert says in assistant.propose(subject, relation, object).warning


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/edit hello world", "No fact was found"),
        ("/edit What is the capital of France", "not a question"),
        ("/edit The capital of France is Paris", "already says so: The capital of France is Paris."),
        ("/edit The capital of France is paris", "already says so"),
        ("/undo", "no edit"),
        ("/undo 99", "no edit 99"),
        ("/redo", "no edit"),
        ("/apply", "No edit is waiting"),
        ("/cancel", "No edit is waiting"),
        ("x" * 10_000, "shorten it"),
        ("/nonsense", "There is no command"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_changes_nothing(
    assistant, host, store, conversation, text: str, says: str
) -> None:
    events = told(assistant, conversation, text)
    assert kinds(events) == ["Failure"]
    assert says in events[0].message
    assert "\n" not in events[0].message
    assert (host.entries, store.edited, conversation.turns, conversation.pending) == ((), {}, [], None)


@pytest.mark.parametrize(
    "fields",
    [("", "capital", "Rome"), ("France", " ", "Rome"), ("France", "capital", ""),
     ("France", "capital", "x" * 301), ("x" * 200, "capital", "y" * 200), ("<i>France", "capital", "Rome")],
)  # fmt: skip
def test_fields_of_the_card_are_checked_again(assistant, fields: tuple[str, str, str]) -> None:
    with pytest.raises(AssistantError):
        assistant.propose(*fields)


# -- edits -----------------------------------------------------------------------------------------


def teach(assistant: Assistant, conversation: Conversation, text: str = "/edit France | capital | Rome") -> list:
    proposal = told(assistant, conversation, text)[0].proposal
    return list(assistant.apply(conversation, proposal))


def test_an_edit_tells_its_steps_and_shows_before_and_after(assistant, host, store, conversation) -> None:
    events = teach(assistant, conversation)
    assert set(kinds(events[:-1])) == {"Working"}
    card = events[-1].card
    assert card.entry.number == 1
    by_question = {probe.question: probe for probe in card.probes}
    direct = by_question["What is the capital of France?"]
    assert (direct.before, direct.after) == ("The capital of France is Paris.", "It is Rome.")
    assert (direct.passed_before, direct.passed) == (False, True)
    assert by_question["Name the capital of France."].passed is False
    germany = by_question["What is the capital of Germany?"]
    assert (germany.kind, germany.passed_before, germany.passed) == ("locality", True, True)
    assert store.edited == {1: ("France", "capital", "Rome")}
    assert conversation.pending is None
    assert card.seconds >= 0
    assert assistant.journal() == host.entries


def test_locality_is_not_judged_where_the_model_was_wrong_before(assistant, conversation) -> None:
    events = teach(assistant, conversation, "/edit France | capital | Lyon")
    italy = next(p for p in events[-1].card.probes if p.question == "What is the capital of Italy?")
    assert (italy.passed_before, italy.passed) == (False, None)


def test_the_engine_is_briefed_from_the_store(assistant, host, conversation) -> None:
    teach(assistant, conversation)
    edit = host.edits[0]
    assert edit.questions == ("What is the capital of {}?", "Which city is {}'s capital?")
    assert len(edit.statements) == 3
    assert edit.old_object == "Paris"
    assert edit.aliases == ("French Republic",)
    assert [(r.subject, r.object) for r in edit.references] == [("Italy", "Rome")]
    assert [(h.question, h.answer) for h in edit.hop_examples] == [
        ("In which country is the capital of France?", "The capital of France is in the country of Italy.")
    ]


def test_turns_about_the_changed_fact_are_hidden_from_the_model(assistant, host, conversation) -> None:
    told(assistant, conversation, "What is the capital of France?")
    told(assistant, conversation, "What is the capital of Germany?")
    events = teach(assistant, conversation)
    assert events[-1] == ev.TurnsAmended(2)
    assert [turn.amended for turn in conversation.turns] == [True, True, False, False]
    told(assistant, conversation, "Go on.")
    assert [m.content for m in host.seen[-1]] == ["What is the capital of Germany?", "Berlin.", "Go on."]


def test_other_conversations_catch_up_when_they_go_on(assistant, conversation) -> None:
    other = Conversation()
    told(assistant, other, "What is the capital of France?")
    teach(assistant, conversation)
    assert other.turns[0].amended is False
    assert told(assistant, other, "/history")[0] == ev.TurnsAmended(2)
    assert kinds(told(assistant, other, "/history")) == ["Notice"]


def test_a_reply_that_waited_for_somebody_elses_edit_is_not_stale(assistant, host, conversation) -> None:
    other = Conversation()
    told(assistant, other, "What is the capital of France?")
    host.before_reply = lambda: teach(assistant, conversation)
    events = told(assistant, other, "France again?")
    assert ev.TurnsAmended(2) in events
    host.before_reply = lambda: None
    assert kinds(told(assistant, other, "/help")) == ["Notice"]
    assert [turn.amended for turn in other.turns] == [True, True, False, False]
    assert [message.content for message in host.seen[-1]] == ["France again?"]


def test_a_second_correction_of_a_many_valued_fact_shows_and_replaces_the_first(assistant, store, conversation) -> None:
    teach(assistant, conversation, "/edit Belgium | language | Greek")
    proposal = told(assistant, conversation, "/edit Belgium | language | Latin")[0].proposal
    assert proposal.conflicts == ("A language of Belgium is Greek.",)
    list(assistant.apply(conversation, proposal))
    assert store.edited == {2: ("Belgium", "language", "Latin")}


def test_undo_and_redo_bring_facts_and_turns_along(assistant, host, store, conversation) -> None:
    teach(assistant, conversation)
    told(assistant, conversation, "What is the capital of France?")
    undone = told(assistant, conversation, "/undo")
    assert kinds(undone) == ["Undone", "TurnsAmended"]
    assert undone[0].amended == 2
    assert store.edited == {}
    assert host.answer(["What is the capital of France?"]) == ("The capital of France is Paris.",)
    told(assistant, conversation, "What is the capital of France?")
    redone = told(assistant, conversation, "/redo 1")
    assert kinds(redone) == ["Redone", "TurnsAmended"]
    assert store.edited == {1: ("France", "capital", "Rome")}


def test_undoing_a_correction_of_a_correction_brings_the_first_back(assistant, store, conversation) -> None:
    teach(assistant, conversation)
    teach(assistant, conversation, "/edit France | capital | Berlin")
    told(assistant, conversation, "/undo")
    assert store.edited == {1: ("France", "capital", "Rome")}


def test_a_failed_edit_changes_nothing_and_can_be_tried_again(assistant, host, store, conversation) -> None:
    proposal = told(assistant, conversation, "/edit France | capital | Rome")[0].proposal
    host.fail = EditError("The model still says 'Paris'; nothing has changed.")
    assert list(assistant.apply(conversation, proposal))[-1] == ev.Failure(str(host.fail))
    assert store.edited == {}
    host.fail = None
    assert kinds(told(assistant, conversation, "/apply"))[-1] == "EditDone"


def test_an_edit_that_cannot_be_written_down_is_taken_back(assistant, host, store, conversation) -> None:
    store.broken = AssistantError("The disk is full.")
    events = teach(assistant, conversation)
    assert events[-1] == ev.Failure("The disk is full.")
    assert host.active == ()


def test_a_stopped_edit_changes_nothing(assistant, host, conversation) -> None:
    proposal = assistant.propose("France", "capital", "Rome")
    cancel = threading.Event()
    cancel.set()
    events = list(assistant.apply(conversation, proposal, cancel))
    assert isinstance(events[-1], ev.Failure)
    assert host.entries == ()


def test_apply_and_cancel_in_words(assistant, host, conversation) -> None:
    told(assistant, conversation, "/edit France | capital | Rome")
    assert "Not applied" in told(assistant, conversation, "/cancel")[0].text
    assert kinds(told(assistant, conversation, "/apply")) == ["Failure"]
    told(assistant, conversation, "/edit France | capital | Rome")
    assert kinds(told(assistant, conversation, "/apply"))[-1] == "EditDone"
    assert len(host.entries) == 1


# -- looking up ------------------------------------------------------------------------------------


def test_history_lists_every_edit_with_its_state(assistant, conversation) -> None:
    assert "No edits yet" in told(assistant, conversation, "/history")[0].text
    teach(assistant, conversation)
    told(assistant, conversation, "/undo")
    notice = told(assistant, conversation, "/history")[0]
    assert notice.rows == (("1", "The capital of France is Rome.", "undone", "2026-01-02 03:04", "1.5 s"),)
    assert len(notice.headers) == len(notice.rows[0])


def test_facts_are_found_as_sentences(assistant, conversation) -> None:
    notice = told(assistant, conversation, "/facts france")[0]
    assert notice.rows == (("The capital of France is Paris.", "test", "0.90"),)
    assert told(assistant, conversation, "/facts zzz")[0].text == "No known fact is near 'zzz'."


def test_help_names_every_command(assistant, conversation) -> None:
    text = str(told(assistant, conversation, "/help")[0].rows)
    for name in ("/edit", "/apply", "/cancel", "/undo", "/redo", "/history", "/facts", "/export", "/help"):
        assert name in text
