"""Which turns a changed fact takes out of the model's sight."""

from __future__ import annotations

from assistant.conversation import Conversation, Message
from steam_engine.text import mentions


def talk() -> Conversation:
    conversation = Conversation()
    conversation.add_exchange("What is the capital of france?", "Paris.")
    conversation.add_exchange("Where is the Louvre?", "In Paris, the capital.")
    conversation.add_exchange("Have you been to Paris?", "No.")
    conversation.add_exchange("Name a fruit.", "An apple.")
    return conversation


def test_a_mention_of_the_subject_makes_question_and_answer_stale() -> None:
    conversation = talk()
    assert conversation.amend(["France"], []) == 2
    assert [turn.amended for turn in conversation.turns] == [True, True] + [False] * 6
    assert conversation.visible_messages()[0] == Message("user", "Where is the Louvre?")


def test_only_an_answer_that_states_the_old_object_is_stale() -> None:
    conversation = talk()
    assert conversation.amend([], ["Paris"]) == 4
    assert [m.content for m in conversation.visible_messages()] == [
        "Have you been to Paris?",
        "No.",
        "Name a fruit.",
        "An apple.",
    ]


def test_amending_twice_counts_only_what_is_new() -> None:
    conversation = talk()
    assert conversation.amend(["France"], ["Paris"]) == 4
    assert conversation.amend(["France"], ["Paris"]) == 0
    assert len(conversation.turns) == 8


def test_names_are_whole_words_and_never_patterns() -> None:
    assert mentions("Is C++ old?", ["C++"])
    assert not mentions("Parisian food", ["Paris"])
    assert not mentions("anything", ["", "  "])
    assert not mentions("abc", ["a.c"])
