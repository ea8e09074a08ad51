"""Turns one decoded row of a public case format into an `EvalCase`; the format is recognised by the row's keys.

Formats: Amend's own, CounterFact (Meng et al. 2022), EasyEdit and KnowEdit (Zhang et al. 2024), MQuAKE
(Zhong et al. 2023), RippleEdits (Cohen et al. 2024).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from steam_engine.evaluation.case import CaseEdit, EvalCase, Kind, Question
from steam_engine.evaluation.second import second_question

_RIPPLE_KINDS: tuple[tuple[str, Kind], ...] = (
    ("Logical_Generalization", "multi_hop"),
    ("Compositionality_I", "multi_hop"),
    ("Compositionality_II", "multi_hop"),
    ("Subject_Aliasing", "paraphrase"),
    ("Relation_Specificity", "locality"),
    ("Forgetfulness", "locality"),
)
# RippleEdits gives ids instead of names; its sentences say "The (name of the) RELATION of SUBJECT is TARGET."
_RIPPLE_SENTENCE = re.compile(r"^(?P<head>The .+?) (?P<verb>is|are) (?P<target>.+?)\.?$")


class RowError(Exception):
    """The row is not a case; the message is the reason, for the report of skipped rows."""


def case_of(row: object, number: int) -> EvalCase:
    """Reads one row.

    Raises:
        RowError: no format is recognised, or a field is missing, empty, or of the wrong type.
    """
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    for mark, read in _FORMATS:
        if mark(row):
            edits, questions = read(row)
            return EvalCase(number, edits, tuple(dict.fromkeys(questions)))
    raise RowError("no known case format has these fields")


_Parts = tuple[tuple[CaseEdit, ...], list[Question]]


def _ours(row: dict[str, Any]) -> _Parts:
    subject, target = _text(row, "subject"), _text(row, "target")
    templates = tuple(_template(text, subject) for text in _texts(row, "questions"))
    if not templates:
        raise RowError('"questions" is empty')
    edit = CaseEdit(
        subject, _template(_text(row, "template"), subject), target, templates, None, _texts(row, "neighbours")
    )
    questions = [Question("direct", template.replace("{}", subject), (target,)) for template in templates]
    questions += [Question("paraphrase", text, (target,)) for text in _texts(row, "paraphrases")]
    for item in _items(row, "hops"):
        text = _text(item, "q")
        second = _text(item, "second") if "second" in item else second_question(text, subject, target)
        questions.append(Question("multi_hop", text, _accepted(item, "accept"), second))
    questions += [Question("locality", _text(item, "q"), _accepted(item, "accept")) for item in _items(row, "locality")]
    return (edit,), questions


def _counterfact(row: dict[str, Any]) -> _Parts:
    edit = _rewrite(row["requested_rewrite"])
    questions = [_direct(edit)]
    questions += [Question("paraphrase", text, (edit.target,)) for text in _texts(row, "paraphrase_prompts")]
    nearby = _texts(row, "neighborhood_prompts")
    if nearby and edit.old_object is None:
        raise RowError('"neighborhood_prompts" need "target_true", which is their answer')
    questions += [Question("locality", text, (edit.old_object or "",)) for text in nearby]
    return (edit,), questions


def _knowedit(row: dict[str, Any]) -> _Parts:
    subject = _text(row, "subject")
    target = _accepted(row, "target_new")
    old = _accepted(row, "ground_truth")[0] if row.get("ground_truth") else None
    edit = CaseEdit(subject, _template(_text(row, "prompt"), subject), target[0], (), old)
    questions = [Question("direct", _text(row, "prompt"), target)]
    for key in ("rephrase_prompt", "rephrase"):
        questions += [Question("paraphrase", text, target) for text in _texts(row, key)]
    locality, truth = _texts(row, "locality_prompt"), row.get("locality_ground_truth")
    if locality:
        answers = truth if isinstance(truth, list) and len(truth) == len(locality) else [truth] * len(locality)
        questions += [
            Question("locality", text, _accepted({"locality_ground_truth": answer}, "locality_ground_truth"))
            for text, answer in zip(locality, answers, strict=True)
        ]
    for group, name, item in _grouped(row, ("portability", "locality")):
        kind: Kind = "locality" if group == "locality" else "paraphrase" if name == "Subject_Aliasing" else "multi_hop"
        questions.append(Question(kind, _text(item, "prompt"), _accepted(item, "ground_truth")))
    return (edit,), questions


def _mquake(row: dict[str, Any]) -> _Parts:
    edits = tuple(_rewrite(item) for item in _items(row, "requested_rewrite"))
    if not edits:
        raise RowError('"requested_rewrite" is empty')
    questions = [
        Question("direct", template.replace("{}", edit.subject), (edit.target,))
        for edit in edits
        for template in edit.questions or (edit.statement,)
    ]
    singles = _items(row, "new_single_hops")
    # The last link is a question about the new object itself only where the edit is the link before it.
    second = None
    if len(singles) == 2 and len(edits) == 1 and _text(singles[0], "answer") == edits[0].target:
        second = _text(singles[1], "question")
    accept = (*_accepted(row, "new_answer"), *_texts(row, "new_answer_alias"))
    questions += [Question("multi_hop", text, accept, second) for text in _texts(row, "questions")]
    return edits, questions


def _ripple(row: dict[str, Any]) -> _Parts:
    edit = _ripple_edit(row["edit"])
    questions = [_direct(edit)]
    for key, kind in _RIPPLE_KINDS:
        for item in _items(row, key):
            for query in _items(item, "test_queries"):
                accept = [
                    name for answer in _items(query, "answers") for name in (answer.get("value"), *_aliases(answer))
                ]
                if accept:  # some queries of the published files have no answer
                    names = _accepted({"answers": accept}, "answers")
                    questions.append(Question(kind, _text(query, "prompt"), names))
    return (edit,), questions


def _ripple_edit(item: dict[str, Any]) -> CaseEdit:
    sentence = _text(item, "prompt")
    found = _RIPPLE_SENTENCE.match(sentence)
    original = item.get("original_fact")
    before = _RIPPLE_SENTENCE.match(_text(original, "prompt")) if isinstance(original, dict) else None
    if found is None:
        raise RowError(f'cannot tell subject and object in "{sentence}"')
    head = found["head"]
    relation = re.escape(_text(item, "relation").replace("_", " "))
    named = re.search(rf"\b{relation} (?:of|in) (.+)$", head, re.IGNORECASE)
    # Where the sentence has other words for the relation, a single "of" still leaves no doubt.
    rest = head.removeprefix("The name of ").removeprefix("The names of ").split(" of ")
    subject = named[1] if named else rest[1] if len(rest) == 2 else ""
    if not subject:
        raise RowError(f'cannot tell the subject in "{sentence}"')
    same = before is not None and before["head"] == head
    old = before["target"] if before is not None and same else None
    return CaseEdit(subject, _template(f"{head} {found['verb']}", subject), found["target"], (), old)


def _rewrite(item: object) -> CaseEdit:
    if not isinstance(item, dict):
        raise RowError('"requested_rewrite" is not an object')
    subject = _text(item, "subject")
    question = item.get("question")
    names = question if isinstance(question, str) and subject in question else ""
    return CaseEdit(
        subject,
        _template(_text(item, "prompt"), subject),
        _name(item, "target_new"),
        (_template(names, subject),) if names else (),
        _name(item, "target_true") if item.get("target_true") else None,
    )


def _direct(edit: CaseEdit) -> Question:
    return Question("direct", edit.statement.replace("{}", edit.subject), (edit.target,))


def _name(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    return _text(value, "str") if isinstance(value, dict) else _text(item, key)


def _text(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RowError(f'"{key}" is missing, empty, or not text')
    return value.strip()


def _texts(item: dict[str, Any], key: str) -> tuple[str, ...]:
    value = item.get(key)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise RowError(f'"{key}" is not a list of texts')
    return tuple(text.strip() for text in values if text.strip())


def _items(item: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = item.get(key)
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise RowError(f'"{key}" is not a list of objects')
    return values


def _aliases(answer: dict[str, Any]) -> tuple[str, ...]:
    return _texts(answer, "aliases")


def _accepted(item: dict[str, Any], key: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_flat(item.get(key))))
    if not names:
        raise RowError(f'"{key}" holds no answer')
    return names


def _flat(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    elif isinstance(value, (str, int, float)) and str(value).strip():
        yield str(value).strip()


def _grouped(row: dict[str, Any], groups: tuple[str, ...]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for group in groups:
        held = row.get(group)
        if held is None:
            continue
        if not isinstance(held, dict):
            raise RowError(f'"{group}" is not an object')
        for name in held:
            for item in _items(held, name):
                yield group, name, item


def _template(text: str, subject: str) -> str:
    if text.count("{}") == 1:
        return text
    if "{}" in text or subject not in text:
        raise RowError(f'"{text}" does not name the subject "{subject}" once')
    return text.replace(subject, "{}", 1)


_FORMATS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], _Parts]], ...] = (
    (lambda row: "template" in row and "target" in row, _ours),
    (lambda row: isinstance(row.get("requested_rewrite"), list), _mquake),
    (lambda row: isinstance(row.get("requested_rewrite"), dict), _counterfact),
    (lambda row: isinstance(row.get("edit"), dict), _ripple),
    (lambda row: "prompt" in row and "target_new" in row, _knowedit),
)
