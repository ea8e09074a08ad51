"""Slash commands as typed records; knows what can be said, not what it does."""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass

from assistant.errors import (
    CommandFormError,
    EmptyEditError,
    EmptyMessageError,
    ExportFormatError,
    ExportNameError,
    ForbiddenCharacterError,
    QuestionAsEditError,
    TextTooLongError,
    UnknownCommandError,
)
from steam_engine.exports.names import FORMAT_NAMES

MAX_MESSAGE = 8_000  # characters
MAX_EDIT = 300  # characters
MAX_EXPORT_NAME = 64  # characters
EXPORT_FORMATS = tuple(format.name for format in FORMAT_NAMES)

HELP: tuple[tuple[str, str], ...] = (
    ("/edit SENTENCE", "teach the model a fact: /edit The capital of France is Rome"),
    ("/edit SUBJECT | RELATION | OBJECT", "the same, in parts: /edit France | capital | Rome"),
    ("/apply, /cancel", "make the proposed edit, or drop it"),
    ("/undo [NUMBER]", "take the last edit (or that one) out of the weights"),
    ("/redo [NUMBER]", "put it back"),
    ("/history", "list the edits"),
    ("/facts QUERY", "search the known facts: /facts capital of France"),
    *((f"/export {format.name} NAME", f"save the corrected model as {format.hint}") for format in FORMAT_NAMES),
    ("/help", "show this list"),
)


@dataclass(frozen=True)
class Say:
    """An ordinary message to the model."""

    text: str


@dataclass(frozen=True)
class EditSentence:
    """/edit The capital of France is Rome."""

    sentence: str


@dataclass(frozen=True)
class EditParts:
    """/edit France | capital | Rome."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Undo:
    """/undo [number]; None is the last active edit."""

    number: int | None


@dataclass(frozen=True)
class Redo:
    """/redo [number]; None is the edit that was undone last."""

    number: int | None


@dataclass(frozen=True)
class History:
    """/history."""


@dataclass(frozen=True)
class SearchFacts:
    """/facts QUERY."""

    query: str


@dataclass(frozen=True)
class Export:
    """/export FORMAT NAME."""

    format: str
    name: str


@dataclass(frozen=True)
class Help:
    """/help."""


@dataclass(frozen=True)
class Apply:
    """/apply."""


@dataclass(frozen=True)
class Cancel:
    """/cancel."""


Command = Say | EditSentence | EditParts | Undo | Redo | History | SearchFacts | Export | Help | Apply | Cancel
_NAMES = ("edit", "apply", "cancel", "undo", "redo", "history", "facts", "export", "help")
_JOINERS = "\u200c\u200d"  # format characters that spell words in several scripts


def parse_message(text: str) -> Command:
    """Read what a person typed.

    Raises:
        AssistantError: of the kind that fits; the message says what to do.
    """
    text = text.encode("utf-8", "replace").decode("utf-8").strip()  # a lone surrogate cannot be tokenised
    if not text:
        raise EmptyMessageError("Type a message, or /help for the list of commands.")
    if len(text) > MAX_MESSAGE:
        raise TextTooLongError(f"This message has {len(text):,} characters; shorten it to at most {MAX_MESSAGE:,}.")
    found = re.fullmatch(r"/([\w-]*)(?:\s+(.*))?", text, re.DOTALL)
    if found is None:
        return Say(text)
    return _parse_command(found[1].lower(), (found[2] or "").strip())


def _parse_command(name: str, rest: str) -> Command:
    match name:
        case "edit":
            return _parse_edit(rest)
        case "undo":
            return Undo(_number("undo", rest))
        case "redo":
            return Redo(_number("redo", rest))
        case "facts":
            return _parse_facts(rest)
        case "export":
            return parse_export(rest)
        case "history":
            return History()
        case "help":
            return Help()
        case "apply":
            return Apply()
        case "cancel":
            return Cancel()
    close = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f"did you mean /{close[0]}?" if close else "type /help for the list."
    raise UnknownCommandError(f"There is no command /{name[:40]}; {hint}")


def check_edit_length(text: str) -> None:
    """Raise TextTooLongError when an edit, or one part of it, is longer than an edit may be."""
    if len(text) > MAX_EDIT:
        raise TextTooLongError(
            f"This edit has {len(text):,} characters; say the fact in one sentence of at most {MAX_EDIT}."
        )


def clean_field(text: str, what: str) -> str:
    """One part of an edit in a single line of composed characters.

    Args:
        text: as it was typed.
        what: what it is called in a message: "subject".

    Raises:
        EmptyEditError, TextTooLongError, ForbiddenCharacterError: it cannot be part of an edit.
    """
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if not text:
        raise EmptyEditError(f"The {what} of the edit is empty; an edit needs a subject, a relation and an object.")
    check_edit_length(text)
    if "\ufffd" in text:
        raise ForbiddenCharacterError(f"The {what} contains a character that could not be read; type it again.")
    bad = next((c for c in text if c in "<>{}" or _is_control(c)), None)
    if bad is not None:
        shown = f"'{bad}'" if bad.isprintable() else f"the control character U+{ord(bad):04X}"
        raise ForbiddenCharacterError(f"The {what} contains {shown}; write it as plain words.")
    if not any(c.isalnum() for c in text):
        raise EmptyEditError(f"The {what} '{text}' holds no letters or digits; write it as plain words.")
    return text


def _is_control(character: str) -> bool:
    return unicodedata.category(character).startswith("C") and character not in _JOINERS


def _parse_edit(rest: str) -> EditSentence | EditParts:
    rest = " ".join(unicodedata.normalize("NFC", rest).split())
    if not rest:
        raise EmptyEditError("Say what is true after /edit, for example: /edit The capital of France is Rome")
    check_edit_length(rest)
    if "|" in rest:
        parts = [part.strip() for part in rest.split("|")]
        if len(parts) != 3 or not all(parts):
            raise CommandFormError(
                "Give exactly three parts, none of them empty: /edit SUBJECT | RELATION | OBJECT, "
                "for example: /edit France | capital | Rome"
            )
        return EditParts(*(clean_field(p, w) for p, w in zip(parts, ("subject", "relation", "object"), strict=True)))
    if rest.rstrip(" .!\"'”’)").endswith(("?", "？", "؟")):
        raise QuestionAsEditError(
            "An edit is a statement, not a question; say what is true, for example: /edit The capital of France is Rome"
        )
    return EditSentence(clean_field(rest, "sentence"))


def _number(command: str, rest: str) -> int | None:
    if not rest:
        return None
    found = re.fullmatch(r"#?([0-9]{1,9})", rest)
    if found is None:
        raise CommandFormError(
            f"After /{command} comes nothing or an edit's number, for example: /{command} 2 (see /history)."
        )
    return int(found[1])


def _parse_facts(rest: str) -> SearchFacts:
    if not rest:
        raise CommandFormError("Say what to look for, for example: /facts capital of France")
    if len(rest) > MAX_EDIT:
        raise TextTooLongError(f"This search has {len(rest):,} characters; use at most {MAX_EDIT}.")
    return SearchFacts(" ".join(rest.split()))


def parse_export(rest: str, command: str = "/export") -> Export:
    """Read the format and the name of an export, which stand after `command`.

    Raises:
        CommandFormError, ExportFormatError, ExportNameError: as the class says.
    """
    example = f"for example: {command} safetensors my-model"
    words = rest.split(maxsplit=1)
    if not words:
        raise CommandFormError(f"Say the format and a name, {example}")
    if words[0].lower() not in EXPORT_FORMATS:
        raise ExportFormatError(
            f"There is no export format '{words[0][:40]}'; use {', '.join(EXPORT_FORMATS[:-1])} or "
            f"{EXPORT_FORMATS[-1]}, {example}"
        )
    if len(words) == 1:
        raise ExportNameError(f"Give the export a name, {example}")
    return Export(words[0].lower(), check_export_name(words[1]))


def check_export_name(name: str) -> str:
    """The name, when it can be a directory's name everywhere.

    Raises:
        ExportNameError: it cannot.
    """
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_EXPORT_NAME}}}", name):
        raise ExportNameError(
            f"'{name[:40]}' cannot be an export's name; use 1 to {MAX_EXPORT_NAME} letters, digits, - and _, "
            "without spaces, dots or slashes."
        )
    return name
