"""Measures edits as a user meets them: free greedy answers in chat before and after, on the default model.

    python -m tests.benchmarks.measure                         the project's own edits (edits.jsonl)
    python -m tests.benchmarks.measure --told                  the yardstick: told the fact in the prompt, unedited
    python -m tests.benchmarks.measure --set alignment_weight=0
    python -m tests.benchmarks.measure --cases FILE            another file, in either of the two forms below

Every edit goes through the same store, briefing and engine as in the chat; each is undone before the next. The direct
questions are among those that an edit is trained on; no other measured question is, nor one with the same answer.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from assistant.briefing import brief, direct_questions, edit_sentence
from assistant.host import ModelHost
from assistant.workspace import cache_directory
from knowledge_store.store import KnowledgeStore
from steam_engine.editor import Editor
from steam_engine.errors import EditError
from steam_engine.loading import LoadedModel, load_model
from steam_engine.settings import EditSettings
from steam_engine.text import mentions
from steam_engine.types import FactEdit

CASES = Path(__file__).with_name("edits.jsonl")
NAMED = "direct, in its name"  # right, and the answer names the subject: not "The capital of Italy is Rome."
KINDS = ("direct", NAMED, "paraphrase", "multi-hop", "locality")


class Question(BaseModel):
    """A question is answered right when the answer holds one of `accept`."""

    model_config = ConfigDict(extra="forbid")

    question: str
    accept: list[str]


class Case(BaseModel):
    """One edit with hand-written questions."""

    model_config = ConfigDict(extra="forbid")

    subject: str
    relation: str
    object: str
    paraphrases: list[str]
    hops: list[Question]
    locality: list[Question]


class ChatQuestion(BaseModel):
    """A question in a file of chat edits."""

    model_config = ConfigDict(extra="forbid")

    q: str
    accept: list[str]


class ChatCase(BaseModel):
    """One edit that comes with its own template; the store's relation of that template is used."""

    model_config = ConfigDict(extra="forbid")

    template: str
    subject: str
    target: str
    questions: list[str]
    paraphrases: list[str]
    hops: list[ChatQuestion]
    locality: list[ChatQuestion]
    neighbours: list[str] = []

    def as_case(self, store: KnowledgeStore) -> Case:
        """The same edit; its own direct questions count as paraphrases, since the store's are trained on."""
        relation = store.find_relation(self.template)
        if relation is None:
            raise SystemExit(f"No relation of the store has the template '{self.template}'.")
        return Case(
            subject=self.subject,
            relation=relation.id,
            object=self.target,
            paraphrases=[*(q.replace("{}", self.subject) for q in self.questions), *self.paraphrases],
            hops=[Question(question=h.q, accept=h.accept) for h in self.hops],
            locality=[Question(question=h.q, accept=h.accept) for h in self.locality],
        )


@dataclass
class Report:
    """Right or wrong by kind, and seconds by edit."""

    right: dict[str, list[bool]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def rate(self, kind: str) -> float:
        """Share of right answers."""
        return sum(self.right[kind]) / max(1, len(self.right[kind]))

    def summary(self) -> str:
        """One line."""
        parts = [f"{k} {sum(v)}/{len(v)} = {self.rate(k):.0%}" for k, v in self.right.items()]
        if self.seconds:
            parts.append(f"median {statistics.median(self.seconds):.1f} s, {statistics.median(self.steps):.0f} steps")
        return ", ".join(parts)


def read_cases(path: Path = CASES) -> list[Case | ChatCase]:
    """Cases from a JSON-lines file."""
    adapter: TypeAdapter[Case | ChatCase] = TypeAdapter(Case | ChatCase)
    return [adapter.validate_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def questions_of(edit: FactEdit, direct: Iterable[str], case: Case) -> list[tuple[str, str, Sequence[str]]]:
    asked = [("direct", question, (edit.target,)) for question in direct]
    asked += [("paraphrase", question, (edit.target,)) for question in case.paraphrases]
    asked += [("multi-hop", q.question, tuple(q.accept)) for q in case.hops]
    asked += [("locality", q.question, tuple(q.accept)) for q in case.locality]
    return asked


def without_measured(edit: FactEdit, case: Case) -> FactEdit:
    """The edit with no training question that is measured, or whose answer is."""
    answers = [name for hop in case.hops for name in hop.accept]
    measured = {q.casefold() for q in (*case.paraphrases, *(hop.question for hop in case.hops))}
    hops = tuple(
        hop
        for hop in edit.hop_examples
        if hop.question.casefold() not in measured and not mentions(hop.answer, answers)
    )
    return replace(edit, hop_examples=hops)


def measure(
    loaded: LoadedModel, cases: Sequence[Case | ChatCase], settings: EditSettings, workspace: Path, told: bool = False
) -> Report:
    """Edits, asks, undoes, case by case."""
    report = Report()
    editor = Editor(loaded, workspace / "journal", cache_directory(), settings)
    host = ModelHost(loaded, editor)
    store = KnowledgeStore.open(workspace / "store")
    editor.prepare(lambda _progress: None)
    for given in cases:
        case = given.as_case(store) if isinstance(given, ChatCase) else given
        relation = store.relation(case.relation)
        edit = without_measured(brief(store, case.subject, relation, case.object), case)
        asked = questions_of(edit, direct_questions(relation, case.subject), case)
        questions = [question for _, question, _ in asked]
        names = [name.removeprefix("the ") for name in (edit.subject, *edit.aliases)]
        before = host.answer(questions)
        if told:
            after = host.answer([f"Fact: {edit_sentence(edit)} Assume that this is true.\n{q}" for q in questions])
            line = ""
        else:
            try:
                entry = editor.apply(edit, lambda _progress: None, threading.Event())
            except EditError as error:
                report.lines.append(f"{case.subject} -> {case.object}: FAILED: {error}")
                after = before
                line = "failed"
            else:
                after = host.answer(questions)
                editor.undo()
                trace = entry.trace
                report.seconds.append(trace.seconds)
                report.steps.append(trace.steps)
                line = (
                    f"{trace.steps} steps, {trace.seconds:.1f} s, delta {trace.delta_norm:.2f}, change "
                    f"{trace.weight_drift:.3f}, recovered {trace.recovered:.3f}, {trace.anchor_kind} anchors "
                    f"{trace.alignment_before:.2f} -> {trace.alignment_after:.2f}"
                )
        report.lines.append(f"{edit_sentence(edit)} ({line})")
        for (kind, question, accept), old, new in zip(asked, before, after, strict=True):
            right = mentions(new, accept)
            if kind == "locality" and not mentions(old, accept):
                continue
            report.right[kind].append(right)
            if kind == "direct":
                report.right[NAMED].append(right and mentions(new, names))
            report.lines.append(f"   {'+' if right else '-'} {kind:<10} {question} => {' '.join(new.split())[:90]}")
    store.close()
    return report


def settings_from(pairs: Sequence[str]) -> EditSettings:
    """EditSettings with "name=value" changes."""
    fields = {f.name: f for f in dataclasses.fields(EditSettings)}
    changes: dict[str, float | int | str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        kind = str(fields[name].type)
        changes[name] = int(value) if "int" in kind or "bool" in kind else float(value) if "float" in kind else value
    return replace(EditSettings(), **changes)  # type: ignore[arg-type]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--model", default=None)
    parser.add_argument("--n", type=int, default=None, help="only the first N edits")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other edit settings")
    parser.add_argument("--told", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = read_cases(options.cases)[: options.n]
        loaded = load_model(options.model, cache_dir=cache_directory())
        report = measure(loaded, cases, settings_from(options.set), Path(folder), told=options.told)
    print("\n".join(report.lines))
    print(report.summary())


if __name__ == "__main__":
    main()
