"""A stand-in for the assistant with the real records and no model."""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from assistant.conversation import Conversation
from assistant.events import (
    EditDone,
    Event,
    Exported,
    Failure,
    Notice,
    ProposalReady,
    Redone,
    ReplyDone,
    TextPiece,
    TurnsAmended,
    Undone,
    Working,
)
from assistant.proposal import EditProposal, ProbeResult, ResultCard
from knowledge_store.phrasing import relation_from_noun
from knowledge_store.types import Relation
from steam_engine.errors import AmendError
from steam_engine.types import EditTrace, FactEdit, JournalEntry, Progress

CAPITAL = relation_from_noun("capital")
LANGUAGE = relation_from_noun("official language")

TRACE = EditTrace(
    layer=12,
    steps=18,
    seconds=3.2,
    losses=(4.0, 1.0, 0.1),
    nll=0.05,
    delta_norm=1.4,
    weight_drift=0.0042,
    recovered=0.998,
    anchor_kind="reference",
    anchors=("Italy",),
)


class FakeAssistant:
    """Answers from a small table, learns what it is told, and can be slowed down to be watched or stopped."""

    model_name = "Fake-1M"

    def __init__(self, exports: Path) -> None:
        self.exports = exports
        self.forget()

    def forget(self) -> None:
        """Be as new."""
        self.pace = 0.01  # seconds between two events
        self.capitals = {"France": "Paris", "Japan": "Tokyo"}
        self.entries: list[JournalEntry] = []
        self.proposed: list[tuple[str, str, str]] = []
        self.cancelled = 0  # changes that were stopped
        self.replying = 0  # replies under way

    # ------------------------------------------------- what the page asks for

    def relations(self) -> tuple[Relation, ...]:
        return (CAPITAL, LANGUAGE)

    def journal(self) -> tuple[JournalEntry, ...]:
        return tuple(self.entries)

    def respond(self, conversation: Conversation, text: str, cancel: threading.Event | None = None) -> Iterator[Event]:
        cancel = cancel or threading.Event()
        command, _, rest = text.partition(" ")
        commands: dict[str, Callable[[], Iterator[Event]]] = {
            "/edit": lambda: self._edit(conversation, rest),
            "/undo": lambda: self._switch(rest, "active", "undone"),
            "/redo": lambda: self._switch(rest, "undone", "active"),
            "/export": lambda: self._export(rest),
            "/help": self._help,
        }
        if command in commands:
            yield from commands[command]()
        elif command.startswith("/"):
            yield Failure(f"There is no command {command}; /help lists them.")
        elif text == "crash":
            raise RuntimeError("a secret of the program")
        else:
            yield from self._reply(conversation, text, cancel)

    def propose(
        self, subject: str, relation: str | Relation, object: str, cancel: threading.Event | None = None
    ) -> EditProposal:
        if isinstance(relation, str):
            relation = relation_from_noun(relation)
        label = relation.label
        self.proposed.append((subject, label, object))
        if not object:
            raise AmendError("Say what the new object is.")
        return EditProposal(
            id=f"p{len(self.proposed)}",
            subject=subject,
            relation=relation,
            object=object,
            statement=f"The {label} of {subject} is {object}.",
            question=f"What is the {label} of {subject}?",
            old_answer=f"The {label} of {subject} is {self.capitals.get(subject, '<b>unknown</b>')}.",
            known_object=self.capitals.get(subject),
            anchors=("The capital of Italy is Rome.", "The Colosseum is in Rome."),
            neighbours=("Germany", "Spain", "Japan", "Italy", "Portugal", "Austria", "Poland", "Greece"),
            conflicts=(f"The {label} of {subject} is {self.capitals.get(subject, 'unknown')}.",),
            warning="This contradicts a well-known fact." if object == "Rome" else None,
        )

    def apply(
        self, conversation: Conversation, proposal: EditProposal, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        cancel = cancel or threading.Event()
        for step in range(20):
            if cancel.wait(self.pace):
                self.cancelled += 1
                yield Failure("The change was stopped; the model is as it was.")
                return
            yield Working(Progress("Finding the new value", step, 20, f"loss {4 / (step + 1):.2f}"))
        yield Working(Progress("Checking what follows from it", 0, 0))
        before = self.capitals.get(proposal.subject, "unknown")
        self.capitals[proposal.subject] = proposal.object
        for index, old in enumerate(self.entries):
            if old.edit.subject == proposal.subject and old.state == "active":
                self.entries[index] = replace(old, state="replaced")
        conversation.pending = None
        entry = JournalEntry(
            number=len(self.entries) + 1,
            edit=FactEdit(
                subject=proposal.subject,
                relation=proposal.relation.id,
                target=proposal.object,
                statements=(f"The {proposal.relation.label} of {{}} is",),
                questions=(f"What is the {proposal.relation.label} of {{}}?",),
                old_object=before,
            ),
            state="active",
            created="2026-01-01T00:00:00Z",
            trace=TRACE,
        )
        self.entries.append(entry)
        yield EditDone(ResultCard(entry, self._probes(proposal, before), seconds=3.4, probe_seconds=2.1))
        count = conversation.amend((proposal.subject,), (before,))
        if count:
            yield TurnsAmended(count)

    # ------------------------------------------------------------ the insides

    def _reply(self, conversation: Conversation, text: str, cancel: threading.Event) -> Iterator[Event]:
        said = ""
        self.replying += 1
        try:
            for word in self._answer(text).split(" "):
                if cancel.wait(self.pace):
                    break
                said += word + " "
                yield TextPiece(word + " ")
        finally:
            self.replying -= 1
        said = said.strip()
        conversation.add_exchange(text, said)
        yield ReplyDone(said, tokens=len(said.split()), seconds=0.1)

    def _answer(self, text: str) -> str:
        if text.startswith("say "):
            return text.removeprefix("say ")
        if "story" in text:
            return " ".join(f"chapter-{number}" for number in range(2000))
        for country, capital in self.capitals.items():
            if country in text:
                return f"The capital of {country} is {capital}."
        return "I do not know."

    def _edit(self, conversation: Conversation, sentence: str) -> Iterator[Event]:
        words = sentence.rstrip(".").split(" ")
        if len(words) < 6:
            yield Failure('I could not read that as a fact; try "/edit The capital of France is Rome".')
            return
        conversation.pending = self.propose(words[3], CAPITAL, words[-1])
        yield ProposalReady(conversation.pending)

    def _switch(self, number: str, old: str, new: str) -> Iterator[Event]:
        for index, entry in enumerate(self.entries):
            if str(entry.number) == number and entry.state == old:
                self.entries[index] = replace(entry, state=new)
                self.capitals[entry.edit.subject] = (
                    entry.edit.target if new == "active" else entry.edit.old_object or ""
                )
                yield (Redone if new == "active" else Undone)(self.entries[index], 0)
                return
        yield Failure(f"There is no change {number} to undo.")

    def _export(self, rest: str) -> Iterator[Event]:
        format, name = rest.split(" ")[0], rest.split(" ")[-1]
        if "/" in name:
            yield Failure("A name may hold letters, digits, dots and dashes only.")
            return
        yield Working(Progress("Writing the weights", 1, 3))
        time.sleep(self.pace)
        path = self.exports / name
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(b"weights" * 1000)
        archive = self.exports / f"{name}.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            packed.write(path / "model.safetensors", f"{name}/model.safetensors")
        yield Working(Progress("Asking the written copy", 2, 3))
        answers = tuple(
            (f"What is the capital of {country}?", f"The capital of {country} is {capital}.")
            for country, capital in self.capitals.items()
        )
        yield Exported(format, path, archive, archive.stat().st_size, 1.5, "a reader", answers)

    def _help(self) -> Iterator[Event]:
        yield Notice(
            "What you can type:",
            headers=("Command", "What it does"),
            rows=(
                ("/edit STATEMENT", "propose a correction: /edit The capital of France is Rome"),
                ("/undo [NUMBER]", "take a change back"),
                ("/export FORMAT [NAME]", "write a checkpoint"),
            ),
        )

    def _probes(self, proposal: EditProposal, before: str) -> tuple[ProbeResult, ...]:
        new, subject = proposal.object, proposal.subject
        return (
            ProbeResult("direct", proposal.question, f"It is {before}.", f"It is {new}.", (new,), True, False),
            ProbeResult(
                "paraphrase",
                f"Tell me the capital of {subject}.",
                f"The capital of {subject} is {before}, a large and very old city on a river.",
                f"The capital of {subject} is {new}.",
                (new,),
                True,
                False,
            ),
            ProbeResult(
                "multi-hop",
                f"In which country is the capital of {subject}?",
                f"The capital of {subject} is in {subject}.",
                "It is in Italy.",
                ("Italy",),
                True,
                False,
            ),
            ProbeResult(
                "multi-hop",
                f"Which language is spoken in the capital of {subject}?",
                "French is spoken there.",
                "French <i>is</i> spoken there.",
                ("Italian",),
                False,
                False,
            ),
            ProbeResult(
                "locality",
                "What is the capital of Japan?",
                "The capital of Japan is Tokyo.",
                "The capital of Japan is Tokyo.",
                ("Tokyo",),
                True,
                True,
            ),
            ProbeResult("locality", "What is a cat?", "A small animal.", "A small animal.", (), None, None),
        )
