"""Reads one sentence as a fact: by the relations' templates, else by "The X of S is O" and "S's X is O"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from knowledge_store.errors import InvalidRelationError
from knowledge_store.facts import FactTable
from knowledge_store.phrasing import THING, relation_from_noun
from knowledge_store.text import key, tidy
from knowledge_store.types import ParsedStatement, Relation

MAX_SENTENCE = 400  # characters; a longer text is not one plain statement
MAX_OBJECT_WORDS = 12
_NAMED_TYPES = frozenset({"city", "country", "person", "continent", "language", "company", "US state", "sport"})
_GAP = r"\s+"
_NOW = r"(?:\s+(?:now|currently|actually|really|in fact))?"
_OPENERS = re.compile(
    r"^(?:(?:no|yes|nope|well|ok|okay|actually|in fact|sorry|wrong|remember|note|please note|fyi|"
    r"please remember|from now on|as of today|as of now|that's wrong|that is wrong|you're wrong|"
    r"you are wrong|not quite|the truth is|in reality|but|and|so|hey|i think|i mean|correction)\b"
    r"(?:\s*[,:;.!-]+\s*|\s+that\s+|\s+))+",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^(?:what|which|who|whom|whose|where|when|why|how|is|are|was|were|do|does|did|can|could|would|should|"
    r"have|has|if|tell me|please|let's|let us|imagine)\b",
    re.IGNORECASE,
)
_NO_OBJECT = re.compile(
    r"^(?:not|no|never|because|that|what|where|who|when|why|how|for|in|on|at|to|of|with|from|by|about|than|as|if|"
    r"so|very|too|also|still|just|only|it|there|wrong|right|correct|true|false)\b",
    re.IGNORECASE,
)
_NO_SUBJECT = re.compile(
    r"^(?:it|this|that|these|those|he|she|they|we|you|i|there|here|everything|something|nothing|someone|everyone)\b",
    re.IGNORECASE,
)
# fmt: off
_NO_NOUN = frozenset((
    "rest", "part", "kind", "sort", "most", "some", "all", "one", "lot", "bit", "end", "beginning", "point",
    "aim", "goal", "problem", "idea", "best", "worst", "first", "last", "many", "few", "none", "much", "half",
    "majority", "side", "top", "bottom", "result", "purpose", "meaning", "case", "matter", "course", "amount",
))
# fmt: on
_IS = r"\s+(?:is|was)\s+(?:(?:now|currently|actually|really|called|named)\s+)*"
_NOUN_OF = re.compile(
    r"^(?:the\s+)?(?P<noun>[^\W\d_][\w'&/-]*(?:\s[\w'&/-]+){0,3}?)\s+of\s+(?P<s>\S.*?)" + _IS + r"(?P<o>\S.*)$",
    re.IGNORECASE,
)
_POSSESSIVE = re.compile(
    r"^(?P<s>\S.*?)(?:'s|(?<=s)')\s+(?P<noun>[^\W\d_][\w&/-]*(?:\s[\w&/-]+){0,3}?)" + _IS + r"(?P<o>\S.*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Form:
    """One template as a regular expression."""

    relation: Relation
    position: int  # of the relation
    expression: re.Pattern[str]
    literal: int  # characters that are not the subject: how specific it is
    telling: bool  # the words alone say which relation is meant
    opens_with_subject: bool


@dataclass(frozen=True)
class _Reading:
    """One way to understand the sentence; the greatest `rank` is the best."""

    statement: ParsedStatement
    rank: tuple[int, int, int]


class StatementParser:
    """Knows the relations' forms; asks the facts which names are known."""

    def __init__(
        self,
        facts: FactTable,
        relations: Iterable[Relation],
        find_relation: Callable[[str], Relation | None],
    ) -> None:
        self._facts = facts
        self._find_relation = find_relation  # by exact name, without meaning
        self._known: dict[str, dict[str, str]] = {}  # types of the names in the sentence that is being read
        self._forms = [
            _form(relation, position, template)
            for position, relation in enumerate(relations)
            for template in (*relation.statements, *relation.patterns)
        ]

    def parse(self, sentence: str) -> ParsedStatement | None:
        """Return the best reading, or None when the sentence is a question or states no fact."""
        self.forget()
        text = sentence.strip()
        if not text or len(text) > MAX_SENTENCE or text.endswith("?") or text.startswith("/"):
            return None
        text = tidy(text)
        # A sentence such as "No, the capital of France is Rome" is read without its opener.
        text = _OPENERS.sub("", text) or text
        # "What you need to play tennis is ..." is a template's own opening; "What is ..." is a question.
        asking = _QUESTION.match(text) is not None and not self._starts_with_name(text)
        readings = [
            reading
            for form in self._forms
            if not (asking and form.opens_with_subject) and (reading := self._read(form, text)) is not None
        ]
        if readings:
            return max(readings, key=lambda reading: reading.rank).statement
        return None if asking else self._generic(text)

    def forget(self) -> None:
        """Drop what was looked up: facts may have changed since."""
        self._known.clear()

    def canonical(self, text: str, type_: str) -> tuple[str, bool]:
        """Return the store's spelling of a name, that of `type_` preferred, and whether it is known."""
        types = self._types(text)
        if type_ in types:
            return types[type_], True
        if types:
            return next(iter(types.values())), True
        return tidy(text), False

    def subject(self, text: str, relation: Relation) -> tuple[str, bool]:
        """Return how the store writes this subject, and whether it has a fact of this relation."""
        known = self._facts.find(text, relation.id, current_only=False, limit=1)
        if known:
            return known[0].subject, True
        name, found = self.canonical(text, relation.subject_type)
        if not found and name.startswith("The "):
            name = "the " + name[4:]
        return name, False

    def object(self, text: str, relation: Relation) -> str:
        """Return how the store writes this object; an unknown one keeps the user's spelling."""
        name, found = self.canonical(text, relation.object_type)
        if found:
            return name
        inner = re.sub(r"^the (?:city|country|state|language|company|sport) of\s+", "", name, flags=re.IGNORECASE)
        if inner != name:
            name, found = self.canonical(inner, relation.object_type)
        return name

    def _types(self, name: str) -> dict[str, str]:
        if name not in self._known:
            self._known[name] = self._facts.entity_types(name)
        return self._known[name]

    def _starts_with_name(self, text: str) -> bool:
        """A title may start like a question: "Who Framed Roger Rabbit was directed by ..."."""
        words = text.split(" ")
        return any(self._types(" ".join(words[:end])) for end in range(1, min(len(words), 8)))

    def _read(self, form: _Form, text: str) -> _Reading | None:
        match = form.expression.match(text)
        if match is None:
            return None
        raw_subject, raw_object = match["s"].strip(" ,"), match["o"].strip(" ,")
        if not _plausible(raw_subject, raw_object):
            return None
        relation = form.relation
        subject, known_subject = self.subject(raw_subject, relation)
        subject_types = self._types(raw_subject)
        object = self.object(raw_object, relation)
        object_types = self._types(object)
        score = 2 if known_subject else 1 if relation.subject_type in subject_types else 0
        if relation.object_type in object_types:
            score += 2
        elif object_types:
            score -= 1  # known, but as something else
        if score <= 0 and not form.telling:
            return None
        if not object_types and relation.object_type in _NAMED_TYPES and _is_remark(raw_subject, raw_object):
            return None
        statement = ParsedStatement(subject, relation, object, known_subject, known_relation=True)
        return _Reading(statement, (score, form.literal, -form.position))

    def _generic(self, text: str) -> ParsedStatement | None:
        for expression in (_NOUN_OF, _POSSESSIVE):
            match = expression.match(text)
            if match is None:
                continue
            noun, raw_subject, raw_object = match["noun"], match["s"], match["o"]
            if not _plausible(raw_subject, raw_object) or set(key(noun).split(" ")) & _NO_NOUN:
                continue
            relation = self._find_relation(noun)
            known_relation = relation is not None
            if relation is None:
                named = any(char.isupper() or char.isdigit() for char in raw_subject)
                if not named and not self._types(raw_subject):
                    continue  # "The quality of the food is bad" is an opinion, not a fact with a name in it
                try:
                    relation = relation_from_noun(noun)
                except InvalidRelationError:
                    continue
            elif relation.object_type in _NAMED_TYPES and _is_remark(raw_subject, raw_object):
                continue
            subject, known_subject = self.subject(raw_subject, relation)
            object = self.object(raw_object, relation) if relation.object_type != THING else self._thing(raw_object)
            return ParsedStatement(subject, relation, object, known_subject, known_relation)
        return None

    def _thing(self, text: str) -> str:
        """Any known name of exactly these words is written as the store does; "a beaver" stays "a beaver"."""
        if re.match(r"(?:a|an)\s", text, re.IGNORECASE):
            return tidy(text)
        return self.canonical(text, THING)[0]


def _form(relation: Relation, position: int, template: str) -> _Form:
    before, _, after = template.partition("{}")

    def literal(part: str) -> str:
        words = [re.escape(word) + (_NOW if word in ("is", "are", "was") else "") for word in part.split()]
        optional = bool(words) and words[0].casefold() == "the"
        return (rf"(?:the\s+)?{_GAP.join(words[1:])}") if optional else _GAP.join(words)

    head = literal(before)
    tail = literal(after)
    possessive = after.startswith("'s")
    if head and before.strip().casefold() != "the":
        head += _GAP
    gap = "" if possessive else r"\s+" if not after.startswith(",") else ""
    expression = rf"^{head}(?P<s>\S.*?){gap}{tail}\s+(?P<o>\S.*)$"
    words = key(before + after)
    telling = bool(before.strip()) or words.endswith(" by") or key(relation.label) in words
    return _Form(
        relation,
        position,
        re.compile(expression, re.IGNORECASE),
        literal=len((before + after).strip()),
        telling=telling,
        opens_with_subject=not head,
    )


def _plausible(subject: str, object: str) -> bool:
    return (
        bool(key(subject))
        and bool(key(object))
        and len(object.split()) <= MAX_OBJECT_WORDS
        and not _NO_OBJECT.match(object)
        and not _NO_SUBJECT.match(subject)
    )


def _is_remark(subject: str, object: str) -> bool:
    """Whether a capitalised subject is followed by plain words: "The capital of France is beautiful"."""
    return any(char.isupper() for char in subject) and not any(char.isupper() or char.isdigit() for char in object)
