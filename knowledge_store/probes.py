"""Makes the questions that show whether an edit holds, and the composed ones that may be trained on.

What is measured and what is trained on never share a second hop: the hops of an edit are dealt out in turn,
the first to the probes, the next to the training examples, and so on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from knowledge_store.facts import EDIT_SOURCE, FactTable
from knowledge_store.text import capitalise, contains, key, render
from knowledge_store.types import Fact, Probe, ProbeSet, Relation

TRAINED_QUESTIONS = 2  # the first questions of a relation may be trained on; the rest measure
MAX_FORWARD = 4
MAX_BACKWARD = 2
PROTECTED = 15  # neighbours that an edit usually protects; locality is measured inside and outside of them


@dataclass(frozen=True)
class _Hop:
    """A second step with all its right answers."""

    relation: Relation
    question: str  # of the step, with {} for a noun phrase
    noun_phrase: str
    answers: tuple[str, ...]
    path: tuple[Fact, ...]

    @property
    def text(self) -> str:
        return capitalise(self.question.replace("{}", self.noun_phrase, 1))


class ProbeMaker:
    """Composes questions from the facts. Deterministic for a given state of the facts and a given seed."""

    def __init__(self, facts: FactTable, relations: Mapping[str, Relation]) -> None:
        self._facts = facts
        self._relations = relations

    # -- what the store says about a name ---------------------------------------------------------

    def hops(self, object: str, relation: Relation | None = None) -> tuple[Fact, ...]:
        """Return the facts that start at `object`, those that make good second steps first.

        With `relation`, what has the same name but is another kind of thing is left out.
        """
        order = {id_: position for position, id_ in enumerate(self._relations)}
        found = self._facts.find(subject=object, limit=200)
        if relation is not None and relation.object_type in self._facts.entity_types(object):
            found = tuple(f for f in found if self._relations[f.relation].subject_type == relation.object_type)
        return tuple(
            sorted(found, key=lambda f: (not self._relations[f.relation].compositions, order[f.relation], f.id))
        )

    def neighbours(self, relation: Relation, subject: str, object: str | None, limit: int) -> list[Fact]:
        """Return facts of other subjects of the relation, best-known first, one for each subject."""
        avoided = {key(fact.object) for fact in self._old(subject, relation, object)}
        if object is not None:
            avoided.add(key(object))
        skipped = self._facts.edited_subjects(relation.id) | self._facts.entity_keys(subject)
        found: dict[str, Fact] = {}
        blocked: set[str] = set()
        for fact in self._facts.find(relation=relation.id, limit=2000):
            subject_key = key(fact.subject)
            if key(fact.object) in avoided:
                blocked.add(subject_key)
            elif subject_key not in skipped:
                found.setdefault(subject_key, fact)
        return [fact for subject_key, fact in found.items() if subject_key not in blocked][:limit]

    def answers(self, relation: Relation, facts: tuple[Fact, ...]) -> tuple[str, ...]:
        """Return every text that answers a question about these facts of one subject and one relation."""
        names = [name for fact in facts for name in self._facts.names(fact.object)]
        if relation.inverse is not None and facts:
            # "Which landmark is Rome famous for?" has more right answers than the one fact.
            others = self._facts.find(relation=relation.inverse, object=facts[0].subject)
            names += [name for fact in others for name in self._facts.names(fact.subject)]
        return tuple(dict.fromkeys(names))

    # -- probes -----------------------------------------------------------------------------------

    def probes(self, subject: str, relation: Relation, object: str, seed: int) -> ProbeSet:
        """Return the direct, paraphrase, multi-hop and locality probes of one edit."""
        wish = Fact(0, subject, relation.id, object, EDIT_SOURCE)
        accept = self._facts.names(object)
        direct = [
            Probe("direct", render(question, subject), accept, (wish,))
            for question in relation.questions[:TRAINED_QUESTIONS]
        ]
        phrase = relation.noun_phrase.replace("{}", subject, 1)
        others = [render(question, subject) for question in relation.questions[TRAINED_QUESTIONS:]]
        others += [f"Tell me {phrase}.", f"I would like to know {phrase}."]
        paraphrase = [Probe("paraphrase", question, accept, (wish,)) for question in others]
        dealt = self._dealt(wish, relation, measured=True)
        multi_hop = [Probe("multi-hop", hop.text, hop.answers, hop.path) for hop in self._vary(dealt, seed)]
        return ProbeSet((*direct, *paraphrase, *multi_hop, *self._locality(wish, relation, seed)))

    def hop_examples(self, subject: str, relation: Relation, object: str) -> tuple[Probe, ...]:
        """Return composed questions that may be trained on."""
        wish = Fact(0, subject, relation.id, object, EDIT_SOURCE)
        dealt = self._dealt(wish, relation, measured=False)
        return tuple(Probe("multi-hop", hop.text, hop.answers, hop.path) for hop in dealt)

    def _vary(self, hops: list[_Hop], seed: int) -> list[_Hop]:
        """Choose one of the wordings of each hop."""
        varied = []
        for hop in hops:
            wordings = hop.relation.compositions
            question = wordings[seed % len(wordings)]
            other = _Hop(hop.relation, question, hop.noun_phrase, hop.answers, hop.path)
            varied.append(other if not _gives_away(other) else hop)
        return varied

    def _dealt(self, wish: Fact, relation: Relation, measured: bool) -> list[_Hop]:
        start = 0 if measured else 1
        forward = self._forward(wish, relation)[start::2][:MAX_FORWARD]
        backward = self._backward(wish, relation)[start::2][: MAX_BACKWARD if len(forward) < 2 else 1]
        return forward + backward

    def _forward(self, wish: Fact, relation: Relation) -> list[_Hop]:
        """Steps that start at the new object: "In which country is the capital of France?"."""
        phrase = relation.noun_phrase.replace("{}", wish.subject, 1)
        old = self._old(wish.subject, relation, wish.object)
        steps: dict[str, list[Fact]] = {}
        for fact in self.hops(wish.object, relation):
            steps.setdefault(fact.relation, []).append(fact)
        hops = []
        for id_, facts in steps.items():
            step = self._relations[id_]
            if not step.compositions or relation.inverse == id_ or step.inverse == relation.id:
                continue
            answers = self.answers(step, tuple(facts))
            before = {
                key(name)
                for fact in old
                for name in self.answers(step, self._facts.find(subject=fact.object, relation=id_))
            }
            if before & {key(name) for name in answers} or key(wish.subject) in {key(name) for name in answers}:
                continue
            hop = _Hop(step, step.compositions[0], phrase, answers, (wish, facts[0]))
            if not _gives_away(hop):
                hops.append(hop)
        return hops

    def _backward(self, wish: Fact, relation: Relation) -> list[_Hop]:
        """Steps that arrive at the edited subject: "Who is the CEO of the company that makes the iPhone?"."""
        if not relation.compositions:
            return []
        avoided = {
            key(wish.object),
            *(key(fact.object) for fact in self._old(wish.subject, relation, wish.object)),
        }
        accept = self._facts.names(wish.object)
        hops: list[_Hop] = []
        used: set[str] = set()
        for fact in self._facts.find(object=wish.subject, limit=200):
            step = self._relations[fact.relation]
            if (
                step.id in used
                or step.object_type != relation.subject_type
                or fact.edit_number is not None
                or relation.id in (step.id, step.inverse)
                or relation.inverse == step.id
                or key(fact.subject) in avoided
                # "The official language of Switzerland" is several things: no single answer would be right.
                or len(self._facts.find(subject=fact.subject, relation=step.id, limit=2)) != 1
            ):
                continue
            phrase = step.noun_phrase.replace("{}", fact.subject, 1)
            hop = _Hop(relation, relation.compositions[0], phrase, accept, (fact, wish))
            if not _gives_away(hop) and not contains(hop.text, wish.subject):
                used.add(step.id)
                hops.append(hop)
        return hops

    def _locality(self, wish: Fact, relation: Relation, seed: int) -> list[Probe]:
        """Questions whose answers must stay: other subjects, the old object, the subject's other facts."""
        chance = random.Random(f"{seed}|{key(wish.subject)}|{relation.id}")
        near = self.neighbours(relation, wish.subject, wish.object, PROTECTED * 2)
        chosen = _sample(chance, near[:PROTECTED], 2) + _sample(chance, near[PROTECTED:], 2)
        stay = [self._plain(fact) for fact in chosen]
        old = self._old(wish.subject, relation, wish.object)
        if old:
            about_old = [fact for fact in self.hops(old[0].object, relation) if key(fact.object) != key(wish.subject)]
            stay += [self._plain(fact) for fact in about_old[:1]]
            implied = {key(fact.object) for fact in self.hops(old[0].object)} | {key(fact.object) for fact in old}
            own = [
                fact
                for fact in self.hops(wish.subject)
                if fact.relation != relation.id
                and fact.edit_number is None
                and self._relations[fact.relation].subject_type == relation.subject_type
                and key(fact.object) not in implied
            ]
            stay += [self._plain(fact) for fact in own[:1]]
        return [
            probe
            for probe in stay
            if not any(contains(probe.question, name) for name in probe.accept)
            and not any(contains(name, wish.object) for name in probe.accept)
        ]

    def _plain(self, fact: Fact) -> Probe:
        step = self._relations[fact.relation]
        facts = self._facts.find(subject=fact.subject, relation=fact.relation)
        return Probe("locality", render(step.questions[0], fact.subject), self.answers(step, facts), (fact,))

    def _old(self, subject: str, relation: Relation, object: str | None) -> tuple[Fact, ...]:
        """Return what holds instead of `object`; if that holds already, what held before edits."""
        current = self._facts.find(subject=subject, relation=relation.id)
        facts = current if any(f.edit_number is None for f in current) else self._facts.original(subject, relation.id)
        return tuple(fact for fact in facts if object is None or key(fact.object) != key(object))


def _gives_away(hop: _Hop) -> bool:
    return any(contains(hop.text, answer) for answer in hop.answers)


def _sample(chance: random.Random, facts: list[Fact], count: int) -> list[Fact]:
    return chance.sample(facts, min(count, len(facts)))
