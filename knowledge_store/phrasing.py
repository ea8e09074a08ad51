"""Rules that make phrasings: a relation from a bare noun ("mascot") or from a statement ("{} lives in")."""

from __future__ import annotations

import re

from knowledge_store.errors import InvalidRelationError
from knowledge_store.text import key, render, slug, tidy
from knowledge_store.types import Relation

AD_HOC = "adhoc:"
THING = "thing"  # the type of what nothing is known about

# fmt: off
_ROLES = frozenset((
    "actor", "actress", "architect", "artist", "assistant", "aunt", "author", "ambassador", "bishop",
    "boss", "boyfriend", "brother", "captain", "ceo", "cfo", "chair", "chairman", "chairperson",
    "chairwoman", "chancellor", "chef", "chief", "child", "coach", "commander", "commissioner",
    "conductor", "cousin", "creator", "cto", "daughter", "dean", "deputy", "designer", "director",
    "doctor", "editor", "emperor", "employee", "engineer", "father", "founder", "friend", "girlfriend",
    "goalkeeper", "governor", "grandfather", "grandmother", "hairdresser", "head", "headmaster",
    "headteacher", "hero", "heir", "husband", "inventor", "judge", "king", "landlord", "lawyer",
    "leader", "lecturer", "manager", "master", "mayor", "minister", "mother", "musician", "nephew",
    "neighbor", "neighbour", "niece", "nurse", "organiser", "organizer", "owner", "painter", "parent",
    "partner", "patron", "performer", "pilot", "player", "pope", "president", "priest", "prince",
    "princess", "principal", "producer", "professor", "queen", "rector", "replacement",
    "representative", "ruler", "secretary", "senator", "singer", "sister", "skipper", "soloist", "son",
    "speaker", "spokesperson", "spouse", "student", "successor", "sultan", "superintendent",
    "supervisor", "teacher", "trainer", "treasurer", "uncle", "villain", "wife", "winner", "writer",
))
# fmt: on
# fmt: off
_NO_NOUNS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "been", "by", "for", "from", "had", "has", "have", "he",
    "her", "his", "in", "is", "it", "its", "no", "not", "of", "on", "or", "she", "that", "the", "their",
    "they", "this", "to", "was", "were", "with",
))
# fmt: on
_NOUN = re.compile(r"[^\W\d_][\w' &/-]*", re.UNICODE)


def is_person_role(noun: str) -> bool:
    """Return whether one asks "Who is the <noun> of ...?" rather than "What is ...?"."""
    last = key(noun).split(" ")[-1]
    return last in _ROLES or last.endswith("ist")


def relation_from_noun(noun: str) -> Relation:
    """Make the relation "the <noun> of {}". Raises InvalidRelationError when `noun` is not a noun phrase."""
    noun = re.sub(r"^(?:the|a|an)\s+", "", tidy(noun), flags=re.IGNORECASE)
    if not _NOUN.fullmatch(noun) or len(noun) > 60 or _NO_NOUNS.issuperset(key(noun).split()):
        raise InvalidRelationError("Name the relation with a plain noun, such as 'mascot' or 'head coach'.")
    ask = "Who" if is_person_role(noun) else "What"
    return Relation(
        id=AD_HOC + slug(noun),
        label=noun,
        statements=(
            f"The {noun} of {{}} is",
            f"{{}}'s {noun} is",
            f"The current {noun} of {{}} is",
            f"If you ask about {{}}, the {noun} is",
        ),
        questions=(
            f"{ask} is the {noun} of {{}}?",
            f"{ask} is {{}}'s {noun}?",
            f"Can you tell me {ask.lower()} the {noun} of {{}} is?",
            f"Do you know the {noun} of {{}}?",
            f"What is the name of {{}}'s {noun}?" if ask == "Who" else f"Which {noun} does {{}} have?",
        ),
        noun_phrase=f"the {noun} of {{}}",
        many=False,
        subject_type=THING,
        object_type=THING,
        compositions=(f"{ask} is the {noun} of {{}}?",),
    )


def relation_from_statement(template: str) -> Relation:
    """Make a relation from a statement with one {} that ends right before the object: "{} lives in".

    Raises InvalidRelationError when there is not exactly one {} or nothing else.
    """
    template = template.strip()
    if template.count("{}") != 1 or not key(template.replace("{}", "")):
        raise InvalidRelationError("A statement needs exactly one {} for the subject, as in '{} lives in'.")
    middle = re.sub(r"\s+", " ", template)
    words = middle.replace("{}", "").strip()
    if middle.startswith("{} "):  # "{} lives in" asks: "What is true: Fido lives in ...?"
        phrase = f"what {{}} {words}"
        lowered = middle
    else:
        phrase = f"what comes after '{middle}'"
        lowered = middle[0].lower() + middle[1:]
    return Relation(
        id=AD_HOC + slug(words),
        label=words,
        statements=(
            render(middle, "{}"),
            f"It is known that {lowered}",
            f"As everybody can tell you, {lowered}",
            f"The fact is that {lowered}",
        ),
        questions=(
            f"Complete this sentence: {middle} ...",
            f"How does this sentence go on: {middle} ...",
            f"What comes next? {middle} ...",
            f"Finish the sentence '{middle} ...'",
        ),
        noun_phrase=phrase,
        many=False,
        subject_type=THING,
        object_type=THING,
    )
