"""Every command, and every way to get one wrong."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import commands as c
from assistant import errors as e

NAME_CHARACTERS = set(string.ascii_letters + string.digits + "-_")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there", c.Say("Hello there")),
        ("/usr/bin is a directory", c.Say("/usr/bin is a directory")),
        ("  /edit  The capital of\n France is Rome. ", c.EditSentence("The capital of France is Rome.")),
        ("/EDIT x is y", c.EditSentence("x is y")),
        ("/edit France | capital |  Rome", c.EditParts("France", "capital", "Rome")),
        ("/edit Cafe\u0301 | owner | Zoë", c.EditParts("Café", "owner", "Zoë")),
        ("/undo", c.Undo(None)),
        ("/undo #12", c.Undo(12)),
        ("/redo 3", c.Redo(3)),
        ("/history", c.History()),
        ("/facts capital of  France", c.SearchFacts("capital of France")),
        ("/export safetensors my-model_2", c.Export("safetensors", "my-model_2")),
        ("/export SafeTensors a", c.Export("safetensors", "a")),
        ("/export lora a", c.Export("lora", "a")),
        ("/export GGUF-Q8_0 a", c.Export("gguf-q8_0", "a")),
        ("/help", c.Help()),
        ("/apply", c.Apply()),
        ("/cancel", c.Cancel()),
    ],
)
def test_reads(text: str, expected: c.Command) -> None:
    assert c.parse_message(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("", e.EmptyMessageError, "/help"),
        ("   \n ", e.EmptyMessageError, "/help"),
        ("x" * 10_000, e.TextTooLongError, "10,000 characters"),
        ("/edit " + "x" * 7_000, e.TextTooLongError, "at most 300"),
        ("/edit", e.EmptyEditError, "/edit The capital"),
        ("/edit   ", e.EmptyEditError, "/edit The capital"),
        ("/edit What is the capital of France?", e.QuestionAsEditError, "statement"),
        ("/edit Is it Rome? ", e.QuestionAsEditError, "statement"),
        ("/edit France | capital", e.CommandFormError, "three parts"),
        ("/edit France || Rome", e.CommandFormError, "three parts"),
        ("/edit a | b | c | d", e.CommandFormError, "three parts"),
        ("/edit <b>France</b> | capital | Rome", e.ForbiddenCharacterError, "subject contains '<'"),
        ("/edit France | capital | Ro\x00me", e.ForbiddenCharacterError, "U+0000"),
        ("/edit France | capital | Ro\ufffdme", e.ForbiddenCharacterError, "could not be read"),
        ("/edit France | capital | Ro\u202eme", e.ForbiddenCharacterError, "U+202E"),
        ("/edit The capital of {} is Rome", e.ForbiddenCharacterError, "'{'"),
        ("/edit France | capital | ...", e.EmptyEditError, "no letters"),
        ("/undo two", e.CommandFormError, "/undo 2"),
        ("/redo 1 2", e.CommandFormError, "/redo 2"),
        ("/undo -1", e.CommandFormError, "number"),
        ("/facts", e.CommandFormError, "/facts capital"),
        ("/facts " + "x" * 301, e.TextTooLongError, "at most 300"),
        ("/export", e.CommandFormError, "/export safetensors"),
        ("/export onnx mine", e.ExportFormatError, "use safetensors, lora, gguf, gguf-q8_0 or journal"),
        ("/export safetensors", e.ExportNameError, "name"),
        ("/export safetensors ../mine", e.ExportNameError, "slashes"),
        ("/export safetensors a.b", e.ExportNameError, "dots"),
        ("/export safetensors a b", e.ExportNameError, "spaces"),
        ("/export safetensors " + "a" * 65, e.ExportNameError, "64"),
        ("/export safetensors é", e.ExportNameError, "letters"),
        ("/edti x is y", e.UnknownCommandError, "/edit?"),
        ("/zzz", e.UnknownCommandError, "/help"),
        ("/", e.UnknownCommandError, "/help"),
    ],
)
def test_refuses_in_one_line(text: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as caught:
        c.parse_message(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@given(st.text(max_size=400))
def test_anything_typed_is_read_or_refused_by_kind(text: str) -> None:
    for typed in (text, f"/edit {text}", f"/export safetensors {text}", f"/{text}"):
        with contextlib.suppress(e.AssistantError):
            command = c.parse_message(typed)
            assert not isinstance(command, c.Export) or set(command.name) <= NAME_CHARACTERS
