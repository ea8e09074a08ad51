"""The one owner of the model: replies, probes, edits and exports take turns behind one lock."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

from assistant.conversation import Message
from assistant.errors import HalfDoneError, StoppedError, TextTooLongError
from steam_engine.chat_format import render_chat
from steam_engine.editor import Editor
from steam_engine.errors import AmendError
from steam_engine.exports.model import EditedModel, edited_model
from steam_engine.generating import continued, end_ids
from steam_engine.importing import Imported, import_journal
from steam_engine.loading import LoadedModel
from steam_engine.types import FactEdit, JournalEntry, Progress, ProgressCallback

T = TypeVar("T")
Work = Callable[[ProgressCallback, threading.Event], T]
Record = Callable[[JournalEntry], None]

_LOG = logging.getLogger(__name__)

NEXT_QUESTION = "\nQuestion:"  # where a base model, which has no end of turn, starts to ask itself
STOPPED = "Stopped; nothing has changed."
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class SamplingOptions:
    """How a reply is generated. Temperature 0 is greedy: the same question gives the same answer."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 256


class _Stop(StoppingCriteria):  # type: ignore[misc]  # transformers is not typed
    """Stops generation after the token at which an event is set, and counts the tokens."""

    def __init__(self, *events: threading.Event) -> None:
        self._events = events
        self.tokens = 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """One token was made. Shape [batch] of "done"."""
        self.tokens += 1
        stop = any(event.is_set() for event in self._events)
        return torch.full((input_ids.shape[0],), stop, dtype=torch.bool, device=input_ids.device)


class ModelHost:
    """Lets any number of threads use one model that is not thread safe.

    Every generator that it returns holds the lock from its first item until its work has ended. Closing one asks
    the work to stop and does not wait for it: the caller may be the event loop that serves everybody.

    Args:
        loaded: the model that the editor edits.
        editor: its journal is already replayed.
    """

    def __init__(self, loaded: LoadedModel, editor: Editor) -> None:
        self.loaded = loaded
        self._editor = editor
        self._lock = threading.Lock()
        self._revision = 0

    @property
    def revision(self) -> int:
        """Increments with each change of the weights."""
        return self._revision

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """The journal, in order."""
        return self._editor.entries

    @property
    def active(self) -> tuple[JournalEntry, ...]:
        """The edits that are in the weights, in order."""
        return self._editor.active

    @property
    def edited(self) -> EditedModel:
        """The model and its active edits, for an export. Read it in `run`, while nothing can change."""
        return edited_model(self._editor)

    # -- replies ------------------------------------------------------------------------------------

    def stream(
        self, messages: Callable[[], Sequence[Message]], options: SamplingOptions, cancel: threading.Event
    ) -> Generator[str, None, int]:
        """Generate a reply to the last message; the oldest turns are left out when the model cannot read all.

        Args:
            messages: asked for when the model is free: what was changed while this waited may have made turns stale.
            options: how to generate.
            cancel: ends the waiting and the reply.

        Yields:
            Pieces of text. Setting `cancel` or closing the generator ends the reply at the next token.

        Returns:
            The number of tokens that were generated.

        Raises:
            TextTooLongError: the last message alone is longer than the model can read.
        """
        closed = threading.Event()
        stop = _Stop(cancel, closed)
        streamer = TextIteratorStreamer(self.loaded.tokenizer, skip_prompt=True, skip_special_tokens=True)
        problems: list[BaseException] = []

        def begin() -> Callable[[], None]:
            ids = self._fit(messages(), options.max_new_tokens)

            def generate() -> None:
                try:
                    self._generate([ids], options, streamer=streamer, stopping_criteria=StoppingCriteriaList([stop]))
                except BaseException as problem:  # handed to the consumer's thread below
                    problems.append(problem)
                finally:
                    streamer.end()

            return generate

        thread = self._start("reply", begin, cancel)
        try:
            pieces = (piece for piece in streamer if piece)
            yield from pieces if self.loaded.is_chat else _base_reply(pieces)
        finally:
            closed.set()
        thread.join()
        if problems:
            raise problems[0]
        return stop.tokens

    def answer(
        self, questions: Sequence[str], max_new_tokens: int = 40, cancel: threading.Event | None = None
    ) -> tuple[str, ...]:
        """Answer single questions, greedily and in one batch; each as if it were the first of a conversation.

        An answer that is longer than `max_new_tokens` ends with an ellipsis.

        Raises:
            TextTooLongError: a question is longer than the model can read.
            StoppedError: `cancel` was set.
        """
        if not questions:
            return ()
        cancel = cancel or threading.Event()
        rows = [self._fit([Message("user", question)], max_new_tokens) for question in questions]
        stop = StoppingCriteriaList([_Stop(cancel)])
        with self._turn(cancel):
            made = self._generate(rows, SamplingOptions(max_new_tokens=max_new_tokens), stopping_criteria=stop)
        if cancel.is_set():
            raise StoppedError(STOPPED)
        return tuple(self._text(row) for row in made)

    def _text(self, ids: list[int]) -> str:
        ends = end_ids(self.loaded)
        length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        text = str(self.loaded.tokenizer.decode(ids[:length], skip_special_tokens=True))
        cut = length == len(ids)
        if not self.loaded.is_chat:
            text, following, _ = text.partition(NEXT_QUESTION)
            cut = cut and not following
        return text.strip().rstrip("\ufffd") + "\u2026" if cut else text.strip()

    def _fit(self, messages: Sequence[Message], max_new_tokens: int) -> list[int]:
        """Token ids of the conversation, without its oldest turns where it is too long for the model."""
        limit = self.loaded.max_tokens - min(max_new_tokens, self.loaded.max_tokens // 4)
        kept = list(messages)
        while True:
            plain = [{"role": message.role, "content": message.content} for message in kept]
            text = render_chat(self.loaded.tokenizer, plain)
            ids = list(self.loaded.tokenizer(text, add_special_tokens=not self.loaded.is_chat)["input_ids"])
            if len(ids) <= limit:
                return ids
            first = next(i for i, message in enumerate(kept) if message.role != "system")
            later = (i for i in range(first + 1, len(kept)) if kept[i].role == "user")
            following = next(later, None)
            if following is None:
                raise TextTooLongError(
                    f"This message is {len(ids):,} tokens long and the model can read {limit:,}; shorten it."
                )
            del kept[first:following]

    def _generate(self, rows: Sequence[list[int]], options: SamplingOptions, **extra: Any) -> list[list[int]]:
        """Continue every row as the options say; returns the new ids only."""
        sampled = {"do_sample": True, "temperature": options.temperature, "top_p": options.top_p}
        n_tokens = min(options.max_new_tokens, self.loaded.max_tokens - max(map(len, rows)))
        return continued(self.loaded, rows, n_tokens, **(sampled if options.temperature > 0 else {}), **extra)

    # -- changes ------------------------------------------------------------------------------------

    def edit(self, edit: FactEdit, cancel: threading.Event, record: Record) -> Generator[Progress, None, JournalEntry]:
        """Write a fact into the weights, in a thread of its own.

        Args:
            edit: the wish.
            cancel: stops it.
            record: told about the new entry while nobody else can use the model. When it raises, the edit is
                taken back.

        Yields:
            Every step. Setting `cancel` or closing the generator stops the edit at the next one.

        Returns:
            The new journal entry.

        Raises:
            StoppedError, EditError, EditCancelledError, JournalError: nothing has changed.
            HalfDoneError: it could neither be recorded nor taken back; the message says what is so now.
        """

        def work(progress: ProgressCallback, stop: threading.Event) -> JournalEntry:
            entry = self._editor.apply(edit, progress, stop)
            self._revision += 1
            self._note(entry, record, self._editor.undo)
            return entry

        return self.run(work, cancel)

    def import_journal(
        self, path: Path, replace: bool, cancel: threading.Event, record: Callable[[], None]
    ) -> Generator[Progress, None, Imported]:
        """Take the edits of an exported journal into the weights; see `steam_engine.importing.import_journal`.

        Args:
            path, replace: the file, and whether its edits may take the place of others.
            cancel: stops it.
            record: called afterwards while nobody else can use the model.

        Raises:
            StoppedError, JournalError, EditCancelledError: nothing has changed.
            HalfDoneError: the edits are in weights and journal, and could not be recorded.
        """

        def work(progress: ProgressCallback, stop: threading.Event) -> Imported:
            found = import_journal(self._editor, path, replace, progress, stop)
            self._revision += 1
            try:
                record()
            except AmendError as problem:
                raise HalfDoneError(
                    f"The edits of {path} are in the model and its journal, but the known facts could not follow "
                    f"({str(problem).rstrip('.')}). Put that right and restart Amend: they then follow the journal."
                ) from problem
            return found

        return self.run(work, cancel)

    def prepare(self, cancel: threading.Event) -> Generator[Progress, None, None]:
        """Make ready for the first edit what takes long (once for each model); see `Editor.prepare`."""
        return self.run(self._editor.prepare, cancel)

    def undo(self, number: int | None, cancel: threading.Event, record: Record) -> JournalEntry:
        """Take an edit (None: the last active one) out of the weights. `cancel` ends the waiting.

        Raises:
            NothingToUndoError, JournalError, StoppedError: nothing has changed.
            HalfDoneError: as `edit`.
        """
        return self._switch(self._editor.undo, self._editor.redo, number, cancel, record)

    def redo(self, number: int | None, cancel: threading.Event, record: Record) -> JournalEntry:
        """Put an edit (None: the one undone last) back into the weights; as `undo`."""
        return self._switch(self._editor.redo, self._editor.undo, number, cancel, record)

    def _switch(
        self,
        switch: Callable[[int | None], JournalEntry],
        back: Callable[[int | None], JournalEntry],
        number: int | None,
        cancel: threading.Event,
        record: Record,
    ) -> JournalEntry:
        with self._turn(cancel):
            entry = switch(number)
            self._revision += 1
            self._note(entry, record, back)
            return entry

    def _note(self, entry: JournalEntry, record: Record, back: Callable[[int | None], JournalEntry]) -> None:
        """Tell `record` of a change; one that it cannot note is taken back.

        Raises:
            Exception: what `record` raised; the change is taken back.
            HalfDoneError: it could not be taken back.
        """
        try:
            record(entry)
        except Exception as problem:
            self._revision += 1
            try:
                back(entry.number)
            except Exception as second:
                self._follow_journal(entry, problem, second)
            raise

    def _follow_journal(self, entry: JournalEntry, problem: Exception, second: Exception) -> None:
        """Make the weights what the journal says after a change that could neither be noted nor be taken back.

        Raises HalfDoneError, unless the journal says that the change was taken back after all.
        """
        if not isinstance(problem, AmendError):
            _LOG.error("A change could not be noted", exc_info=problem)
        try:
            self._editor.restore()
        except Exception as third:
            raise HalfDoneError(
                f"Edit {entry.number} could neither be noted among the known facts nor be taken back, and the weights "
                "are in doubt. Restart Amend now: weights and facts are then made what the journal says."
            ) from third
        state = next((e.state for e in self._editor.entries if e.number == entry.number), None)
        if state == entry.state:
            reason = str(problem) if isinstance(problem, AmendError) else "what went wrong is written in the terminal"
            raise HalfDoneError(
                f"Edit {entry.number} is {state} in the model and in its journal, but the known facts could not follow "
                f"({reason.rstrip('.')}), and taking the change back failed too. Put that right and restart Amend: "
                "the facts then follow the journal."
            ) from second

    def run(self, work: Work[T], cancel: threading.Event) -> Generator[Progress, None, T]:
        """Run something long in a thread while the lock is held.

        Args:
            work: called with a progress callback, and an event that asks it to stop.
            cancel: ends the waiting for the lock, and stops the work.

        Yields:
            What the progress callback was told.

        Returns:
            What `work` returned.
        """
        told: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        results: list[T] = []
        problems: list[BaseException] = []
        stop = _Linked(cancel)

        def run() -> None:
            try:
                results.append(work(told.put, stop))
            except BaseException as problem:  # handed to the consumer's thread below
                problems.append(problem)
            finally:
                told.put(None)

        thread = self._start("work", lambda: run, cancel)
        try:
            while (progress := told.get()) is not None:
                yield progress
        finally:
            stop.set()
        thread.join()
        if problems:
            raise problems[0]
        return results[0]

    def _start(self, name: str, begin: Callable[[], Callable[[], None]], cancel: threading.Event) -> threading.Thread:
        """Wait for the lock, call `begin` here, and what it returns in a thread that then gives the lock back."""
        self._take(cancel)
        try:
            work = begin()

            def run() -> None:
                try:
                    work()
                finally:
                    self._lock.release()

            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
        except BaseException:
            self._lock.release()
            raise
        return thread

    def _take(self, cancel: threading.Event) -> None:
        """Acquire the lock, unless `cancel` is set before it is free: then StoppedError."""
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if cancel.is_set():
                raise StoppedError(STOPPED)

    @contextmanager
    def _turn(self, cancel: threading.Event) -> Iterator[None]:
        """The lock, for as long as the context is open; see `_take`."""
        self._take(cancel)
        try:
            yield
        finally:
            self._lock.release()


class _Linked(threading.Event):
    """An event that is also set when another one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether this event or the other one is set."""
        return super().is_set() or self._other.is_set()


def _base_reply(pieces: Iterable[str]) -> Iterator[str]:
    """The answer of a model without a chat template, which would go on with a question of its own."""
    started = False
    for piece in until(pieces, NEXT_QUESTION):
        text = piece if started else piece.lstrip()
        started = started or bool(text)
        if text:
            yield text


def until(pieces: Iterable[str], end: str) -> Iterator[str]:
    """The pieces up to where `end` begins, also when `end` is spread over several of them."""
    held = ""
    for piece in pieces:
        held += piece
        before, found, _ = held.partition(end)
        if found:
            if before:
                yield before
            return
        keep = next(n for n in range(min(len(end) - 1, len(held)), -1, -1) if held.endswith(end[:n]))
        ready, held = held[: len(held) - keep], held[len(held) - keep :]
        if ready:
            yield ready
    if held:
        yield held
