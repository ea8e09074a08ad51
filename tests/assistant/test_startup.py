"""Everything together on a tiny model: the real host, editor, journal and store, over restarts."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assistant import events as ev
from assistant import startup
from assistant.briefing import brief
from assistant.conversation import Conversation
from assistant.errors import WorkspaceError
from assistant.options import Options
from knowledge_store.errors import StoreUnwritableError
from steam_engine.editor import Editor
from steam_engine.errors import CorpusError, JournalError
from steam_engine.exports.transaction import UNFINISHED
from steam_engine.loading import LoadedModel
from steam_engine.types import FactEdit
from tests.disk import unusable
from tests.steam_engine.conftest import SETTINGS, taught_model

QUESTION = "What is the capital of France?"


def simple_brief(*wish: Any) -> FactEdit:
    """The store's briefing without the words that the tiny model was never taught."""
    edit = brief(*wish)
    return replace(
        edit, statements=edit.statements[:1], neighbours=("Germany", "Spain", "Poland"), hop_examples=(), references=()
    )


def load(model: str, device: str, dtype: str, cache_dir: Path) -> LoadedModel:
    """A tiny model that was taught a few capitals, under any name; another name is another base model."""
    return replace(taught_model("llama"), name=model, fingerprint=model * 8)


@pytest.fixture
def options(moments_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A workspace of its own; the default model is not needed."""
    monkeypatch.setattr(startup, "cache_directory", lambda: moments_cache)
    monkeypatch.setattr(startup, "load_model", load)
    monkeypatch.setattr(
        startup,
        "Editor",
        lambda loaded, journal, cache, asked: Editor(
            loaded, journal, cache, replace(SETTINGS, statistics=asked.statistics)
        ),
    )
    monkeypatch.setattr("assistant.assistant.brief", simple_brief)
    return Options("chat", "llama", "cpu", "auto", tmp_path / "work", "127.0.0.1", 0, open_browser=False, yes=True)


@pytest.fixture(scope="session")
def moments_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moments")


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


def test_facts_that_a_crash_kept_from_being_written_follow_the_journal(options: Options) -> None:
    """The program ended between the journal, which is the truth, and the facts."""
    with startup.ready(options, lambda line: None) as (assistant, workspace):
        editor, store = assistant._host._editor, assistant._store
        relation = store.relation("capital")
        editor.apply(simple_brief(store, "France", relation, "Rome"), lambda progress: None)
    with startup.ready(options, lambda line: None) as (assistant, _):
        assert say(assistant, Conversation(), "/edit France | capital | Lyon")[0].proposal.known_object == "Rome"
        assistant._host._editor.undo()
    with startup.ready(options, lambda line: None) as (assistant, _):
        assert say(assistant, Conversation(), "/edit France | capital | Lyon")[0].proposal.known_object == "Paris"
    assert workspace.root == options.workspace


def test_a_change_that_is_half_done_is_whole_after_a_restart(options: Options, monkeypatch) -> None:
    """The disk refuses the facts and then, when the edit is to be taken back, the journal."""
    with startup.ready(options, lambda line: None) as (assistant, workspace), contextlib.ExitStack() as refusing:

        def refuse(*args: object) -> None:
            refusing.enter_context(unusable(workspace.journal))
            raise StoreUnwritableError("The facts file cannot be written: the disk is full.")

        proposal = assistant.propose("France", "capital", "Rome")
        monkeypatch.setattr(assistant._store, "record_edit", refuse)
        failure = list(assistant.apply(Conversation(), proposal))[-1]
        assert isinstance(failure, ev.Failure)
        assert "Edit 1 is active" in failure.message
        assert "restart Amend" in failure.message
        edited = say(assistant, Conversation(), QUESTION)[-1].text
    with startup.ready(options, lambda line: None) as (assistant, _):
        assert [entry.state for entry in assistant.journal()] == ["active"]
        assert say(assistant, Conversation(), QUESTION)[-1].text == edited
        assert say(assistant, Conversation(), "/edit France | capital | Lyon")[0].proposal.known_object == "Rome"


def test_what_a_killed_export_left_is_removed_at_the_next_start(options: Options) -> None:
    assert options.workspace is not None
    left = options.workspace / "exports" / f".mine.abcdefgh{UNFINISHED}"
    left.mkdir(parents=True)
    with startup.ready(options, lambda line: None):
        assert not left.exists()


def test_the_same_model_in_another_dtype_is_refused_with_the_remedy(options: Options, monkeypatch) -> None:
    with startup.ready(options, lambda line: None) as (assistant, _):
        proposal = assistant.propose("France", "capital", "Rome")
        assert any(isinstance(e, ev.EditDone) for e in assistant.apply(Conversation(), proposal))

    def in_half(*wish: Any) -> LoadedModel:
        return replace(load(*wish), dtype=torch.bfloat16, fingerprint="half" * 16)

    monkeypatch.setattr(startup, "load_model", in_half)
    with pytest.raises(JournalError, match="--dtype float32"), startup.ready(options, lambda line: None):
        pass


def test_the_text_for_statistics_reaches_the_edits(options: Options, tmp_path: Path, moments_cache: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text(" ".join(f"In {year}, people lived in a city." for year in range(500)))
    before = set(moments_cache.glob("moments-*"))
    with startup.ready(replace(options, statistics=str(text)), lambda line: None) as (assistant, _):
        proposal = assistant.propose("France", "capital", "Rome")
        events = list(assistant.apply(Conversation(), proposal))
        assert any(isinstance(e, ev.EditDone) for e in events), events[-1]
    assert len(set(moments_cache.glob("moments-*")) - before) == 1
    text.write_text("")
    with (
        pytest.raises(CorpusError, match="is empty"),
        startup.ready(replace(options, statistics=str(text)), lambda line: None),
    ):
        pass


def test_a_workspace_in_use_and_another_model_are_refused(options: Options) -> None:
    with startup.ready(options, lambda line: None) as (assistant, _):
        with pytest.raises(WorkspaceError, match="--workspace"), startup.ready(options, lambda line: None):
            pass
        proposal = assistant.propose("France", "capital", "Rome")
        assert any(isinstance(e, ev.EditDone) for e in assistant.apply(Conversation(), proposal))
    with (
        pytest.raises(JournalError, match="another base model"),
        startup.ready(replace(options, model="other"), lambda line: None),
    ):
        pass
    with startup.ready(options, lambda line: None) as (assistant, _):  # nothing was lost
        assert len(assistant.journal()) == 1
