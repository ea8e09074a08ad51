"""The command line: what it means, and one line for what it cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.options import Options, parse_options


def test_defaults_serve_the_page_to_this_machine_only() -> None:
    assert parse_options([]) == Options("serve", None, "auto", "auto", None, "127.0.0.1", 7860, True, False)


def test_the_page_can_have_several_names() -> None:
    wanted = parse_options(["--allow-host", "amend.example", "--host", "0.0.0.0", "--allow-host", "[fe80::1]"])
    assert wanted.allowed_hosts == ("amend.example", "[fe80::1]")


def test_options_go_before_or_after_the_mode(tmp_path: Path) -> None:
    wanted = parse_options(["chat", "--model", "m", "--yes", "--workspace", str(tmp_path)])
    assert wanted == parse_options(["--workspace", str(tmp_path), "--yes", "--model", "m", "chat"])
    assert (wanted.mode, wanted.yes, wanted.workspace) == ("chat", True, tmp_path)


def test_an_export_has_a_format_and_a_name(tmp_path: Path) -> None:
    wanted = parse_options(["export", "--workspace", str(tmp_path), "GGUF", "mine"])
    assert (wanted.mode, wanted.export, wanted.workspace) == ("export", ("gguf", "mine"), tmp_path)


def test_an_import_has_a_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal.json"
    journal.write_text("{}")
    for named in (journal, tmp_path):
        wanted = parse_options(["import", str(named), "--replace"])
        assert (wanted.mode, wanted.journal, wanted.replace) == ("import", journal, True)


def test_the_text_for_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("A text.")
    monkeypatch.chdir(tmp_path)
    assert parse_options(["--statistics", "notes.txt"]).statistics == str(tmp_path / "notes.txt")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert parse_options(["chat", "--statistics", "hf:a/b::test"]).statistics == "hf:a/b::test"
    with pytest.raises(SystemExit):
        parse_options(["export", "gguf", "mine", "--statistics", "notes.txt"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["talk"],
        ["--port", "x"],
        ["--port", "-1"],
        ["--port", "65536"],
        ["--port", ""],
        ["--device", "gpu"],
        ["--device", "cuda:x"],
        ["--dtype", "int4"],
        ["--model", ""],
        ["--host", " "],
        ["--allow-host", "http://amend.example"],
        ["--allow-host", "amend.example:80"],
        ["--allow-host", "a b"],
        ["chat", "--allow-host", "amend.example"],
        ["--workspace", __file__],
        ["--nonsense"],
        ["--yes"],
        ["chat", "--port", "80"],
        ["chat", "--no-browser"],
        ["chat", "gguf"],
        ["export"],
        ["import"],
        ["import", "nowhere.json"],
        ["import", __file__, __file__],
        ["chat", "--replace"],
        ["export", "gguf"],
        ["export", "onnx", "mine"],
        ["export", "gguf", "../mine"],
        ["export", "gguf", "mine", "too"],
        ["export", "gguf", "mine", "--yes"],
        ["export", "gguf", "mine", "--port", "80"],
        ["--statistics", ""],
        ["--statistics", "nowhere.txt"],
        ["--statistics", __file__],
        ["--statistics", "hf:"],
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert complaint.startswith("amend: ")
