"""Everything together on a tiny model: the real host, editor, journal and store, over restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant import events as ev
from assistant import startup
from assistant.conversation import Conversation
from assistant.errors import WorkspaceError
from assistant.options import Options
from steam_engine.editor import Editor
from steam_engine.errors import JournalError
from steam_engine.settings import EditSettings
from tests.conftest import save_tiny_model

QUESTION = "What is the capital of France?"


@pytest.fixture
def options(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A workspace and a cache of its own; second moments from few tokens, because the model is tiny."""
    monkeypatch.setattr(startup, "cache_directory", lambda: tmp_path / "cache")
    small = EditSettings(moment_tokens=512, max_steps=60, max_drift=10.0, max_delta=50.0)
    monkeypatch.setattr(startup, "Editor", lambda loaded, journal, cache: Editor(loaded, journal, cache, small))
    return Options(
        "chat", str(tiny_model), "cpu", "auto", tmp_path / "work", "127.0.0.1", 0, open_browser=False, yes=True
    )


def say(assistant, conversation: Conversation, text: str) -> list[ev.Event]:
    return list(assistant.respond(conversation, text))


def test_an_edit_lives_on_until_it_is_undone(options: Options) -> None:
    told: list[str] = []
    conversation = Conversation()
    with startup.ready(options, told.append) as (assistant, workspace):
        plain = say(assistant, conversation, QUESTION)[-1].text
        proposal = say(assistant, conversation, "/edit The capital of France is Rome")[-1].proposal
        assert proposal.known_object == "Paris"
        assert proposal.anchors
        assert len(proposal.neighbours) == 15
        events = list(assistant.apply(conversation, proposal))
        done = next((event for event in events if isinstance(event, ev.EditDone)), None)
        assert done is not None, events[-1]
        assert {probe.kind for probe in done.card.probes} == {"direct", "paraphrase", "multi-hop", "locality"}
        assert events[-1] == ev.TurnsAmended(2)
        edited = say(assistant, Conversation(), QUESTION)[-1].text
        assert edited != plain
        assert workspace.root == options.workspace
    assert "with 0 edits" in told[-1]

    with startup.ready(options, told.append) as (assistant, _):
        assert "with 1 edit." in told[-1]
        assert [entry.edit.target for entry in assistant.journal()] == ["Rome"]
        assert say(assistant, Conversation(), QUESTION)[-1].text == edited
        facts = say(assistant, Conversation(), "/edit France | capital | Lyon")[0].proposal
        assert facts.known_object == "Rome"
        assert "Undone" in str(say(assistant, Conversation(), "/undo"))
        assert say(assistant, Conversation(), QUESTION)[-1].text == plain

    with startup.ready(options, told.append) as (assistant, _):
        assert "with 0 edits" in told[-1]
        assert say(assistant, Conversation(), "/edit France | capital | Lyon")[0].proposal.known_object == "Paris"


def test_a_workspace_in_use_and_another_model_are_refused(options: Options, tmp_path: Path) -> None:
    with startup.ready(options, lambda line: None) as (assistant, _):
        with pytest.raises(WorkspaceError, match="--workspace"), startup.ready(options, lambda line: None):
            pass
        proposal = assistant.propose("France", "capital", "Rome")
        assert any(isinstance(e, ev.EditDone) for e in assistant.apply(Conversation(), proposal))
    other = save_tiny_model(tmp_path / "other", seed=1)
    with (
        pytest.raises(JournalError, match="another base model"),
        startup.ready(replace(options, model=str(other)), lambda line: None),
    ):
        pass
    with startup.ready(options, lambda line: None) as (assistant, _):  # nothing was lost
        assert len(assistant.journal()) == 1
