"""The owner of the model: generation on a tiny random Llama, and who may do what when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.conversation import Message
from assistant.errors import AssistantError, HalfDoneError, StoppedError, TextTooLongError
from assistant.host import ModelHost, SamplingOptions, until
from steam_engine.errors import EditError, JournalError
from steam_engine.loading import load_model
from steam_engine.types import CancelToken, FactEdit, JournalEntry, Progress, ProgressCallback
from tests.assistant.fakes import TRACE

EDIT = FactEdit("France", "capital", "Rome", ("The capital of {} is",), ("What is the capital of {}?",))
SHORT = SamplingOptions(max_new_tokens=12)
ASK = (Message("user", "What is the capital of France?"),)


class ScriptedEditor:
    """An editor that waits to be let go, and remembers what it was asked."""

    def __init__(self) -> None:
        self.entries: tuple[JournalEntry, ...] = ()
        self.undone: list[int | None] = []
        self.go = threading.Event()
        self.go.set()
        self.problem: Exception | None = None
        self.refusal: Exception | None = None  # of undo and redo
        self.late = False  # whether the refusal comes after the journal was written
        self.restored = 0

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        return self.entries

    def apply(self, edit: FactEdit, progress: ProgressCallback, cancel: CancelToken) -> JournalEntry:
        progress(Progress("Reading the subject", 0, 1))
        while not self.go.wait(0.01):
            if cancel.is_set():
                raise EditError("stopped")
        progress(Progress("Done", 1, 1))
        if self.problem:
            raise self.problem
        entry = JournalEntry(len(self.entries) + 1, edit, "active", "2026-01-01T00:00:00+00:00", TRACE)
        self.entries += (entry,)
        return entry

    def undo(self, number: int | None = None) -> JournalEntry:
        self.undone.append(number)
        if self.refusal and not self.late:
            raise self.refusal
        self.taken, self.entries = self.entries[-1], self.entries[:-1]
        if self.refusal:
            raise self.refusal
        return self.taken

    def restore(self) -> None:
        self.restored += 1
        if isinstance(self.refusal, MemoryError):
            raise self.refusal

    def redo(self, number: int | None = None) -> JournalEntry:
        self.entries += (self.taken,)
        return self.taken


@pytest.fixture
def editor() -> ScriptedEditor:
    return ScriptedEditor()


@pytest.fixture
def host(tiny_model: Path, editor: ScriptedEditor) -> ModelHost:
    return ModelHost(load_model(str(tiny_model), "cpu"), editor)


def finish(steps: Generator) -> tuple[list, object]:
    items = []
    while True:
        try:
            items.append(next(steps))
        except StopIteration as end:
            return items, end.value


def never() -> threading.Event:
    return threading.Event()


def free(host: ModelHost) -> bool:
    """Whether somebody else could use the model now."""
    taken = host._lock.acquire(timeout=2)
    if taken:
        host._lock.release()
    return taken


def eventually(true: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# -- generation ------------------------------------------------------------------------------------


def test_streaming_and_asking_say_the_same(host) -> None:
    pieces, tokens = finish(host.stream(lambda: ASK, SHORT, never()))
    answer = host.answer([ASK[0].content], max_new_tokens=12)[0]
    assert answer == "".join(pieces).strip() + "…"  # it was cut
    assert tokens == 12
    assert len(pieces) > 1
    assert free(host)


def test_a_batch_gives_every_question_the_answer_that_it_gets_alone(host) -> None:
    questions = ["Hello", "What is the capital of Italy, of France and of Germany?", "Which language?"]
    together = host.answer(questions)
    assert together == tuple(host.answer([question])[0] for question in questions)
    assert host.answer([]) == ()


def test_answers_end_where_the_model_ends_its_turn(host) -> None:
    ids = host._generate([host._fit(ASK, 12)], SHORT)[0]
    host.loaded.model.generation_config.eos_token_id = [ids[4]]
    first = ids.index(ids[4])
    expected = host.loaded.tokenizer.decode(ids[:first], skip_special_tokens=True).strip()
    answers = host.answer([ASK[0].content, "Hello there, which language is spoken?"], max_new_tokens=12)
    assert answers[0] == expected


def test_nothing_is_random_at_temperature_zero_whatever_the_model_prefers(host) -> None:
    config = host.loaded.model.generation_config
    config.do_sample, config.temperature, config.top_p = True, 5.0, 0.5
    texts = {"".join(host.stream(lambda: ASK, SHORT, never())) for _ in range(3)}
    assert len(texts) == 1


def test_closing_a_reply_ends_it_and_lets_others_use_the_model(host) -> None:
    reply = host.stream(lambda: ASK, SamplingOptions(max_new_tokens=180), never())
    next(reply)
    started = time.perf_counter()
    reply.close()
    assert eventually(lambda: free(host))
    assert time.perf_counter() - started < 2
    assert eventually(lambda: not [t for t in threading.enumerate() if t.name == "reply"])


def test_closing_does_not_wait_for_work_that_does_not_stop(host) -> None:
    go = threading.Event()

    def stubborn(progress, stop) -> None:
        progress(Progress("Working", 0, 1))
        go.wait(30)

    steps = host.run(stubborn, never())
    next(steps)
    started = time.perf_counter()
    steps.close()
    assert time.perf_counter() - started < 1
    assert not free(host)
    go.set()
    assert eventually(lambda: free(host))


def test_the_messages_are_asked_for_when_the_model_is_free(host) -> None:
    held: list[bool] = []

    def messages() -> list[Message]:
        held.append(not free(host))
        return ASK

    finish(host.stream(messages, SHORT, never()))
    assert held == [True]


def test_questions_can_be_stopped(host) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(StoppedError):
        host.answer(["What is the capital of France?"], cancel=cancel)
    assert free(host)


def test_cancel_ends_a_reply_early_but_properly(host) -> None:
    cancel = threading.Event()
    pieces = []
    reply = host.stream(lambda: ASK, SamplingOptions(max_new_tokens=180), cancel)
    for piece in reply:
        pieces.append(piece)
        cancel.set()
    assert 1 <= len(pieces) < 60
    assert free(host)


def test_an_error_while_generating_reaches_the_reader_and_frees_the_model(host, monkeypatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(host.loaded.model, "generate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(host.stream(lambda: ASK, SHORT, never()))
    assert free(host)


def test_the_oldest_turns_make_room_for_the_newest(host) -> None:
    turns = [Message("system", "be brief")]
    for number in range(40):
        turns += [Message("user", f"question {number}"), Message("assistant", f"answer {number}")]
    turns.append(Message("user", "the last one"))
    ids = host._fit(turns, 12)
    text = host.loaded.tokenizer.decode(ids)
    assert len(ids) <= host.loaded.max_tokens - 12
    assert "be brief" in text
    assert "the last one" in text
    assert "question 39" in text
    assert "question 0<" not in text
    assert "answer 0<" not in text
    assert text.index("question") < text.index("answer")
    pieces, _ = finish(host.stream(lambda: turns, SHORT, never()))
    assert pieces


def test_a_message_longer_than_the_model_can_read_is_refused(host) -> None:
    with pytest.raises(TextTooLongError, match="shorten it"):
        list(host.stream(lambda: [Message("user", "word " * 400)], SHORT, never()))
    assert free(host)


def test_a_model_without_a_chat_template_answers_in_a_plain_form(tiny_base_model: Path, editor) -> None:
    host = ModelHost(load_model(str(tiny_base_model), "cpu"), editor)
    text = host.loaded.tokenizer.decode(host._fit((*ASK, Message("assistant", "Rome."), ASK[0]), 12))
    question = "Question: What is the capital of France?"
    assert text == f"{question}\nAnswer: Rome.\n{question}\nAnswer:"
    said = "".join(host.stream(lambda: ASK, SHORT, never()))
    assert host.answer([ASK[0].content], 12)[0].removesuffix("…") == said.strip()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["one", " two"], "one two"),
        (["one\nQuestion: two"], "one"),
        (["one\nQues", "tion: two", "three"], "one"),
        (["one\n", "Quest", "s"], "one\nQuests"),
        (["\nQuestion:"], ""),
        (["one\n"], "one\n"),
    ],
)
def test_text_ends_where_the_next_question_begins(pieces: list[str], expected: str) -> None:
    assert "".join(until(iter(pieces), "\nQuestion:")) == expected


# -- changes ---------------------------------------------------------------------------------------


def test_an_edit_tells_its_steps_and_returns_its_entry(host, editor) -> None:
    noted = []
    steps, entry = finish(host.edit(EDIT, never(), noted.append))
    assert [step.stage for step in steps] == ["Reading the subject", "Done"]
    assert [entry] == noted == list(host.entries)
    assert host.revision == 1
    assert free(host)


def test_no_reply_starts_while_an_edit_is_made(host, editor) -> None:
    editor.go.clear()
    edit = host.edit(EDIT, never(), lambda entry: None)
    next(edit)
    said: list[str] = []

    def talk(reply: Iterator[str]) -> None:
        said.extend(reply)

    reader = threading.Thread(target=talk, args=(host.stream(lambda: ASK, SHORT, never()),))
    reader.start()
    time.sleep(0.3)
    assert said == []
    editor.go.set()
    finish(edit)
    reader.join(timeout=10)
    assert said


def test_waiting_for_ones_turn_can_be_stopped(host, editor) -> None:
    editor.go.clear()
    edit = host.edit(EDIT, never(), lambda entry: None)
    next(edit)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(StoppedError):
        list(host.stream(lambda: ASK, SHORT, cancel))
    editor.go.set()
    finish(edit)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_an_edit_can_be_stopped(host, editor, how: str) -> None:
    editor.go.clear()
    cancel = threading.Event()
    edit = host.edit(EDIT, cancel, lambda entry: None)
    next(edit)
    if how == "cancel":
        cancel.set()
        with pytest.raises(EditError, match="stopped"):
            list(edit)
    else:
        edit.close()
    assert eventually(lambda: free(host))
    assert (host.entries, host.revision) == ((), 0)


def test_an_edit_that_fails_frees_the_model(host, editor) -> None:
    editor.problem = EditError("no")
    with pytest.raises(EditError, match="no"):
        list(host.edit(EDIT, never(), lambda entry: None))
    assert host.revision == 0
    assert free(host)


@pytest.mark.parametrize("problem", [AssistantError("disk full"), RuntimeError("disk full")])
def test_an_edit_that_cannot_be_noted_is_undone(host, editor, problem: Exception) -> None:
    def record(entry: JournalEntry) -> None:
        raise problem

    with pytest.raises(type(problem), match="disk full"):
        list(host.edit(EDIT, never(), record))
    assert editor.undone == [1]
    assert host.entries == ()


def test_a_change_that_cannot_be_noted_is_taken_back(host, editor) -> None:
    def record(entry: JournalEntry) -> None:
        raise AssistantError("disk full")

    finish(host.edit(EDIT, never(), lambda entry: None))
    with pytest.raises(AssistantError, match="disk full"):
        host.undo(None, never(), record)
    assert len(host.entries) == 1
    host.undo(None, never(), lambda entry: None)
    with pytest.raises(AssistantError, match="disk full"):
        host.redo(None, never(), record)
    assert host.entries == ()
    assert free(host)


@pytest.mark.parametrize("problem", [AssistantError("The disk is full."), RuntimeError("a mistake")])
def test_what_can_neither_be_noted_nor_taken_back_is_told_as_it_is(host, editor, problem: Exception, caplog) -> None:
    def record(entry: JournalEntry) -> None:
        raise problem

    editor.refusal = JournalError("The journal could not be written; nothing has changed.")
    with pytest.raises(HalfDoneError, match=r"Edit 1 is active in the model and in its journal.*restart Amend") as told:
        finish(host.edit(EDIT, never(), record))
    assert "nothing has changed" not in str(told.value)
    assert ("The disk is full)" in str(told.value)) != ("a mistake" in caplog.text)
    assert [entry.state for entry in host.entries] == ["active"]
    assert editor.restored == 1
    assert host.revision == 2
    assert free(host)


def test_weights_that_cannot_be_restored_are_told(host, editor) -> None:
    def record(entry: JournalEntry) -> None:
        raise AssistantError("The disk is full.")

    editor.refusal = MemoryError()
    with pytest.raises(HalfDoneError, match=r"in doubt\. Restart Amend now"):
        finish(host.edit(EDIT, never(), record))
    assert free(host)


def test_a_change_that_the_journal_took_back_is_taken_back(host, editor) -> None:
    """Undo wrote the journal and failed after that; the weights follow the journal."""

    def record(entry: JournalEntry) -> None:
        raise AssistantError("The disk is full.")

    editor.refusal, editor.late = RuntimeError("after the journal"), True
    with pytest.raises(AssistantError, match="The disk is full"):
        finish(host.edit(EDIT, never(), record))
    assert host.entries == ()
    assert editor.restored == 1


def test_undo_tells_the_recorder(host) -> None:
    finish(host.edit(EDIT, never(), lambda entry: None))
    noted: list[SimpleNamespace] = []
    entry = host.undo(None, never(), noted.append)
    assert noted == [entry]
    assert host.revision == 2
