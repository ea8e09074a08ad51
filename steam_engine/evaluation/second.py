"""The second step of a two-step question, by rule: its phrase for the new object is replaced by the object itself."""

from __future__ import annotations

import re

_OPENING = r"[Tt]he (?:(?!the )[\w-]+ ){1,4}?"  # "the city ", "the official language of "
_RELATIVE = re.compile(rf"(?:{_OPENING}(?:that|which|where|who|in which|for which) |(?<= )where )$")
_LINKED = re.compile(rf"(?:{_OPENING}(?:that|which|who) (?:is|was|are) )?{_OPENING}$")
_MADE = re.compile(rf"{_OPENING}(?:that|which|who) \w+ $")  # "the company that makes "
_POSSESSIVE = re.compile(r"['’]s? (?:(?:[\w-]+ ){0,2}[\w-]+(?=[?.!]*$)|[\w-]+)")  # "'s chief executive?"


def second_question(question: str, subject: str, target: str) -> str | None:
    """The question about the new object itself, whose answer is the answer of the composed one.

    "Which river flows through the capital of Australia?" with London gives "Which river flows through London?".
    Where no phrase around the subject is recognised, the subject itself is replaced.

    Args:
        question: the composed question.
        subject: of the edit.
        target: the new object.

    Returns:
        None where the question does not name the subject.
    """
    found = re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", question, re.IGNORECASE)
    if found is None:
        return None
    before, after = question[: found.start()], question[found.end() :]
    possessive = _POSSESSIVE.match(after)
    end = re.search(r"[?.!]*$", after)
    mark = end[0] if end else ""
    if relative := _RELATIVE.search(before):  # "the sport that Federer plays": the clause goes on to the end
        place = "in " if relative[0] == "where " else ""
        return before[: relative.start()] + place + target + mark
    if linked := _LINKED.search(before) or _MADE.search(before):
        return re.sub(r"\bare $", "is ", before[: linked.start()]) + target + after
    if possessive:
        return before + target + after[possessive.end() :]
    if re.match(r" born\b", after):  # "In which country was Einstein born?"
        return re.sub(r"was $", "is ", before) + target + after[len(" born") :]
    return before + target + after
