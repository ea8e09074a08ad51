"""The terminal: a script of lines in, plain text out."""

from __future__ import annotations

import io
import signal
import sqlite3
from pathlib import Path

import pytest

from assistant import terminal
from assistant.assistant import Assistant
from assistant.events import Exported, Notice
from assistant.terminal_view import TerminalView, safe
from steam_engine.types import Progress
from tests.assistant.fakes import FakeHost, FakeStore

ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "Which city is France's capital?": "Paris.",
}


def run(lines: str, tmp_path: Path, yes: bool = False, host: FakeHost | None = None) -> str:
    out = io.StringIO()
    assistant = Assistant(host or FakeHost(ANSWERS), FakeStore(), tmp_path, archives=False)
    terminal.chat(assistant, yes, io.StringIO(lines), out)
    return out.getvalue()


def test_a_script_is_echoed_and_answered(tmp_path: Path) -> None:
    assert run("What is the capital of France?\n\n/undo\nHi", tmp_path) == (
        "> What is the capital of France?\n"
        "The capital of France is Paris.\n"
        "> /undo\n"
        "There is no edit  to change. See /history for the numbers.\n"
        "> Hi\n"
        "I do not know.\n"
    )


def test_without_yes_nothing_is_applied_and_the_way_out_is_told(tmp_path: Path) -> None:
    host = FakeHost(ANSWERS)
    text = run("/edit The capital of France is Rome\n", tmp_path, host=host)
    assert "Proposed edit: The capital of France is Rome." in text
    assert "Not applied" in text
    assert "--yes" in text
    assert host.entries == ()


def test_with_yes_an_edit_is_applied_and_its_card_is_printed(tmp_path: Path) -> None:
    text = run("/edit The capital of France is Rome\nWhat is the capital of France?\n/history\n", tmp_path, yes=True)
    assert "Edit 1 is made in" in text
    assert "  Asked directly: 2 of 2\n" in text
    assert "    yes What is the capital of France?\n" in text
    assert "        before: The capital of France is Paris.\n" in text
    assert "        after:  It is Rome.\n" in text
    assert "\nIt is Rome.\n" in text
    assert "1       The capital of France is Rome.  active" in text
    assert "\x1b" not in text
    assert text.count("... Finding the new value\n") == 1


def test_the_line_apply_applies(tmp_path: Path) -> None:
    assert "Edit 1 is made" in run("/edit France | capital | Rome\n/apply\n", tmp_path)


def test_it_goes_on_after_a_failure(tmp_path: Path) -> None:
    text = run("/edit\n/undo 99\n/nope\nWhat is the capital of France?\n", tmp_path)
    assert text.endswith("The capital of France is Paris.\n")
    assert "Traceback" not in text


def test_it_goes_on_after_a_mistake_of_its_own(tmp_path: Path) -> None:
    class Broken(FakeHost):
        @property
        def active(self):
            raise sqlite3.OperationalError("disk I/O error")

    text = run("What is the capital of France?\nHi\n", tmp_path, host=Broken(ANSWERS))
    assert text.count("Amend itself made a mistake") == 2
    assert "Traceback" not in text


def test_what_the_model_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    host = FakeHost()
    host.pieces = ["red \x1b[31m[bold]text[/bold]", "\x07\r\u202e"]
    assert "red [31m[bold]text[/bold]\n" in run("Hi\n", tmp_path, host=host)
    assert safe("a\x00b\nc\x9bd\u200de") == "ab\ncd\u200de"


def test_an_interrupt_stops_the_reply_not_the_program(tmp_path: Path) -> None:
    host = FakeHost(ANSWERS)

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    host.pieces = ["One", " two"]
    host.before_reply = interrupt
    before = signal.getsignal(signal.SIGINT)
    text = run("Count!\n/help\n", tmp_path, host=host)
    assert "(no answer)" in text
    assert "/edit SENTENCE" in text
    assert signal.getsignal(signal.SIGINT) is before


class Typed(io.StringIO):
    """Input that looks like a person at a terminal."""

    def isatty(self) -> bool:
        return True


def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[str], host: FakeHost) -> str:
    said = iter(answers)

    def typed(prompt: str = "") -> str:
        try:
            return next(said)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    out = io.StringIO()
    terminal.chat(Assistant(host, FakeStore(), tmp_path), False, Typed(), out)
    assert next(said, None) is None, "not everything was asked for"
    return out.getvalue()


def test_a_person_is_asked_and_no_means_no(monkeypatch, tmp_path: Path) -> None:
    host = FakeHost(ANSWERS)
    text = ask(monkeypatch, tmp_path, ["/edit France | capital | Rome", "", "/apply"], host)
    assert host.entries == ()
    assert "Not applied: The capital of France is Rome." in text
    assert "No edit is waiting" in text


def test_yes_applies(monkeypatch, tmp_path: Path) -> None:
    host = FakeHost(ANSWERS)
    ask(monkeypatch, tmp_path, ["/edit France | capital | Rome", "Y"], host)
    assert [e.edit.target for e in host.active] == ["Rome"]


def test_a_proposal_can_be_edited_first(monkeypatch, tmp_path: Path) -> None:
    host = FakeHost(ANSWERS)
    answers = ["/edit France | capital | Rome", "e", "", "", "<b>", "e", "", "", "Berlin", "y"]
    text = ask(monkeypatch, tmp_path, answers, host)
    assert "The object contains '<'" in text
    assert [e.edit.target for e in host.active] == ["Berlin"]


def test_an_export_and_a_table_are_shown_whole(tmp_path: Path) -> None:
    out = io.StringIO()
    view = TerminalView(out, tty=False)
    view.show(Exported("lora", tmp_path, tmp_path / "x.zip", 5_000_000, 2.0, "a reader", (("Q?", "A."),)))
    view.show(Notice("Facts:", ("fact",), (("word " * 60,),)))
    text = out.getvalue()
    assert f"Saved to {tmp_path} (5.0 MB, 2.0 s), checked with a reader." in text
    assert f"In one file: {tmp_path / 'x.zip'}" in text
    assert "Checked: Q? A." in text
    assert ("word " * 60).strip() in text


def test_progress_is_one_line_on_a_terminal() -> None:
    out = io.StringIO()
    view = TerminalView(out, tty=True)
    for step in range(3):
        view._work(Progress("Finding the new value", step, 3))
    view.close()
    assert "... " not in out.getvalue()
