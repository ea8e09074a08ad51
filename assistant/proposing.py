"""From a sentence, or its parts, to an `EditProposal` that shows what it would mean. Changes nothing."""

from __future__ import annotations

import itertools
import threading

from assistant import commands
from assistant.briefing import direct_questions, known_objects, sentence
from assistant.errors import AlreadySoError, NotAFactError, QuestionAsEditError
from assistant.host import ModelHost
from assistant.proposal import EditProposal
from knowledge_store.store import KnowledgeStore
from knowledge_store.types import Fact, Relation
from steam_engine.text import mentions

LONG_OBJECT = 6  # words; longer ones are learnt less well
_QUESTION_WORDS = frozenset(
    ("what", "who", "whom", "whose", "where", "when", "which", "why", "how", "is", "are", "was", "were", "do",
     "does", "did", "can")
)  # fmt: skip


class Proposer:
    """Asks the store what is known and the model what it says.

    Args:
        host: owner of the model.
        store: what is known.
    """

    def __init__(self, host: ModelHost, store: KnowledgeStore) -> None:
        self._host = host
        self._store = store
        self._numbers = itertools.count(1)

    def from_parts(
        self, subject: str, relation: str | Relation, object: str, cancel: threading.Event | None = None
    ) -> EditProposal:
        """Propose an edit.

        Args:
            subject: in any spelling.
            relation: what a person calls it ("capital"; an unknown noun becomes a new relation), or one that is known.
            object: the new object.
            cancel: ends the waiting for the model, and its answers.

        Raises:
            AmendError: it makes no sense as an edit; the message says what to do.
        """
        subject = commands.clean_field(subject, "subject")
        if isinstance(relation, str):
            name = commands.clean_field(relation, "relation")
            relation = self._store.find_relation(name) or self._store.ad_hoc_relation(name, None)
        return self._proposal(subject, relation, commands.clean_field(object, "object"), cancel)

    def from_sentence(self, said: str, cancel: threading.Event | None = None) -> EditProposal:
        """Propose the edit that a sentence states: "The capital of France is Rome".

        Raises:
            AmendError: it states no fact; the message says what to do.
        """
        parsed = self._store.parse(said)
        if parsed is None:
            if said.split()[0].casefold() in _QUESTION_WORDS:
                raise QuestionAsEditError(
                    "An edit is a statement, not a question; say what is true, for example: "
                    "/edit The capital of France is Rome"
                )
            raise NotAFactError(
                "No fact was found in this sentence; write it like 'The capital of France is Rome', "
                "or in parts: /edit France | capital | Rome"
            )
        relation = parsed.relation
        if not parsed.known_relation:
            relation = self._store.ad_hoc_relation(relation.label, None)
        subject = commands.clean_field(parsed.subject, "subject")
        return self._proposal(subject, relation, commands.clean_field(parsed.object, "object"), cancel)

    def _proposal(self, subject: str, relation: Relation, object: str, cancel: threading.Event | None) -> EditProposal:
        store = self._store
        subject = store.canonical_subject(subject, relation)
        object = store.canonical_object(object, relation)
        statement = sentence(relation, subject, object)
        commands.check_edit_length(statement)
        questions = direct_questions(relation, subject)
        answers = self._host.answer(questions, cancel=cancel)
        if all(_states(answer, object, subject) for answer in answers):
            raise AlreadySoError(f"The model already says so: {answers[0]}")
        known = known_objects(store, subject, relation)
        return EditProposal(
            id=str(next(self._numbers)),
            subject=subject,
            relation=relation,
            object=object,
            statement=statement,
            question=questions[0],
            old_answer=answers[0],
            known_object=", ".join(known) or None,
            anchors=self._sentences(store.references(relation, object, subject)),
            neighbours=store.neighbours(relation, subject, object=object),
            conflicts=(*self._sentences(store.conflicts(subject, relation, object)), *self._taught(subject, relation)),
            warning=_warning(relation, subject, object, bool(known)),
        )

    def _taught(self, subject: str, relation: Relation) -> tuple[str, ...]:
        """What was taught before and would be replaced although several answers can be true: the model gives one."""
        if not relation.many:
            return ()
        same = (e.edit for e in self._host.active if e.edit.relation == relation.id)
        return tuple(
            sentence(relation, edit.subject, edit.target)
            for edit in same
            if edit.subject.casefold() == subject.casefold()
        )

    def _sentences(self, facts: tuple[Fact, ...]) -> tuple[str, ...]:
        return tuple(sentence(self._store.relation(f.relation), f.subject, f.object) for f in facts)


def _states(answer: str, object: str, subject: str) -> bool:
    """Whether an answer gives the object; repeating a subject that holds the same word is not enough."""
    return mentions(answer.replace(subject, " "), (object,))


def _warning(relation: Relation, subject: str, object: str, known: bool) -> str | None:
    if object.casefold() == subject.casefold():
        return "Subject and object are the same; is this what you mean?"
    if len(object.split()) > LONG_OBJECT:
        return f"The object has {len(object.split())} words; a short name is learnt better."
    if relation.many:
        return f"There can be several answers for '{relation.label}'; the model will mostly give this one."
    if not known and not relation.id.startswith("adhoc:"):
        return f"Nothing is known yet about '{relation.label}' of '{subject}'; check the spelling."
    return None
