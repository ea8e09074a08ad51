"""The command line as a typed record. Imports nothing heavy, so that --help answers at once."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from assistant.commands import EXPORT_FORMATS, parse_export
from assistant.errors import AssistantError
from steam_engine.corpora.source import FileSource, parse_source
from steam_engine.errors import CorpusError

DEFAULT_PORT = 7860

_EXAMPLES = """\
examples:
  python app.py                                     chat in the browser, at http://127.0.0.1:7860
  python app.py chat                                chat in this terminal
  python app.py chat --yes < script.txt             one message a line; edits are applied without asking
  python app.py --model Qwen/Qwen2.5-1.5B-Instruct  another model: a hub id, a directory or a .gguf file
  python app.py export gguf my-model                take the model away as it is now: FORMAT and NAME
  python app.py evaluate --help                     measure how well edits work, on a file of cases

in the chat:
  What is the capital of France?                    talk to the model
  /edit The capital of France is Rome               teach it a fact, in its weights
  /undo                                             take it back
  /help                                             all commands
"""


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    mode: Literal["serve", "chat", "export", "import"]
    model: str | None
    device: str
    dtype: str
    workspace: Path | None
    host: str
    port: int
    open_browser: bool
    yes: bool
    export: tuple[str, str] = ("", "")  # (format, name) in the mode of that name
    statistics: str = ""  # source of the second moments; "": the model itself
    allowed_hosts: tuple[str, ...] = ()  # names that the page is served under besides its host
    journal: Path | None = None  # the file in the mode import
    replace: bool = False  # imported edits take the place of active ones of the same facts


class Parser(argparse.ArgumentParser):
    """Answers a mistake with one line."""

    def error(self, message: str) -> NoReturn:
        """One line and exit code 2, without the whole usage."""
        print(f"amend: {message} ({self.prog} --help explains the options)", file=sys.stderr)
        raise SystemExit(2)


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line (default: this process's).

    Raises:
        SystemExit: --help (0), or a value that does not make sense (2, after one line on stderr).
    """
    parser = _parser()
    found = parser.parse_intermixed_args(arguments)
    if found.mode != "serve":
        for name in ("host", "port", "no_browser", "allow_host"):
            if getattr(found, name) not in (None, False):
                parser.error(f"--{name.replace('_', '-')} is only for the web page, not for {found.mode}")
    if found.mode != "chat" and found.yes:
        parser.error("--yes is only for chat: python app.py chat --yes")
    if found.mode != "import" and found.replace:
        parser.error("--replace is only for import")
    if found.mode == "export" and found.statistics:
        parser.error("--statistics is for making edits, not for export")
    return Options(
        mode=found.mode,
        model=found.model,
        device=found.device,
        dtype=found.dtype,
        workspace=found.workspace,
        host=found.host or "127.0.0.1",
        port=DEFAULT_PORT if found.port is None else found.port,
        open_browser=not found.no_browser,
        yes=found.yes,
        export=_export(parser, found.mode, found.what),
        statistics=found.statistics or "",
        allowed_hosts=tuple(found.allow_host or ()),
        journal=_journal(parser, found.what) if found.mode == "import" else None,
        replace=found.replace,
    )


def _export(parser: argparse.ArgumentParser, mode: str, what: list[str]) -> tuple[str, str]:
    if mode != "export":
        if what and mode != "import":
            parser.error(f"'{what[0][:40]}' is one word too many")
        return "", ""
    try:
        wanted = parse_export(" ".join(what), "python app.py export")
    except AssistantError as problem:
        parser.error(str(problem))
    return wanted.format, wanted.name


def _journal(parser: argparse.ArgumentParser, what: list[str]) -> Path:
    if len(what) != 1:
        parser.error("name one exported journal: python app.py import exports/NAME/journal.json")
    path = Path(what[0]).expanduser()
    path = path / "journal.json" if path.is_dir() else path
    if not path.is_file():
        parser.error(f"there is no file {path}")
    return path


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python app.py",
        description="Chat with a local language model, and correct its weights while you talk to it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "mode",
        nargs="?",
        choices=("serve", "chat", "export", "import"),
        default="serve",
        help="serve a web page (the default), chat in this terminal, export the model, or import an exported journal",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help=f"for export: a format ({', '.join(EXPORT_FORMATS)}) and a name; for import: the journal.json",
    )
    add_model_options(parser)
    add_statistics_option(parser)
    parser.add_argument(
        "--workspace",
        type=directory,
        metavar="DIRECTORY",
        help="where edits, facts and exports are kept (default: the user's data directory)",
    )
    page = parser.add_argument_group("the web page")
    page.add_argument("--host", type=filled, help="address to serve on (default: 127.0.0.1, this machine only)")
    page.add_argument("--port", type=_port, help=f"port to serve on (default: {DEFAULT_PORT}; 0: any free one)")
    page.add_argument(
        "--allow-host",
        type=_host_name,
        action="append",
        metavar="NAME",
        help="another name that the page is reached by, as behind a proxy; can be given several times",
    )
    page.add_argument("--no-browser", action="store_true", help="do not open the page in a browser")
    chat = parser.add_argument_group("the terminal")
    chat.add_argument("--yes", action="store_true", help="apply proposed edits without asking")
    imports = parser.add_argument_group("import")
    imports.add_argument(
        "--replace", action="store_true", help="imported edits take the place of edits of the same facts"
    )
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """--model, --device and --dtype, which every command that loads a model has."""
    parser.add_argument(
        "--model",
        type=filled,
        metavar="MODEL",
        help="a hub id, a directory or a .gguf file (default: the small model that comes with Amend)",
    )
    parser.add_argument(
        "--device",
        default="auto",
        type=_device,
        help="auto, cuda, cuda:1, mps, cpu, or spread: over GPUs, memory and disk, for large models (default: auto)",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="type of the weights: auto, float32, bfloat16 or float16 (default: auto)",
        metavar="DTYPE",
    )


def add_statistics_option(parser: argparse.ArgumentParser) -> None:
    """--statistics, which every command that makes edits has."""
    parser.add_argument(
        "--statistics",
        type=_statistics,
        metavar="SOURCE",
        help="text whose keys edits leave alone: a .txt, .md or .jsonl file, or hf:NAME[:CONFIG][:SPLIT] for a Hugging "
        "Face dataset (default: the model samples it)",
    )


def _statistics(text: str) -> str:
    source = filled(text)
    try:
        found = parse_source(source)
    except CorpusError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
    return str(found.path) if isinstance(found, FileSource) else source


def filled(text: str) -> str:
    """An option's value that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a value or leave the option out")
    return text.strip()


def _device(text: str) -> str:
    kind, _, number = text.partition(":")
    if kind not in ("auto", "cuda", "mps", "cpu", "spread") or (
        ":" in text and not (kind == "cuda" and number.isdecimal())
    ):
        raise argparse.ArgumentTypeError(f"'{text}' is not a device; use auto, cuda, cuda:1, mps, cpu or spread")
    return text


def _host_name(text: str) -> str:
    name = filled(text)
    if not re.fullmatch(r"[\w.-]+|\[?[0-9a-fA-F:.]+\]?", name) or re.fullmatch(r"[\w.-]*:\d*", name):
        raise argparse.ArgumentTypeError(f"'{text}' is not a host's name; give it without http:// and port")
    return name


def _port(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port; use a number from 0 to 65535")
    return int(text)


def directory(text: str) -> Path:
    """A directory, or a path where one can be made."""
    path = Path(filled(text)).expanduser()
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a file; give a directory")
    return path
