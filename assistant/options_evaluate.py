"""The command line of `python app.py evaluate`. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assistant.options import Parser, add_model_options, add_statistics_option, directory, filled
from steam_engine.methods.names import NAMES

METHODS = ",".join(NAMES)

_EXAMPLES = """\
examples:
  python app.py evaluate cases.jsonl --out results
  python app.py evaluate counterfact.json --methods steam,rome --limit 50 --seed 1 --out results
  python app.py evaluate cases.jsonl --methods steam,memit --batch 10 --out batches
  python app.py evaluate cases.jsonl --ray auto --out results

CASES is JSON lines or a JSON list, in Amend's own form, or as CounterFact, EasyEdit, KnowEdit, MQuAKE or RippleEdits
have them; docs/evaluate.md shows each. A run that was stopped goes on when it is started again with the same options.
"""


@dataclass(frozen=True)
class EvaluateCommand:
    """What the person asked for."""

    cases: Path
    methods: tuple[str, ...]
    out: Path
    limit: int | None
    seed: int | None
    mode: Literal["each", "batch", "sequential"]
    batch: int
    model: str | None
    device: str
    dtype: str
    ray: str | None = None  # address of a cluster
    statistics: str = ""  # source of the second moments; "": the model itself


def parse_evaluate(arguments: Sequence[str]) -> EvaluateCommand:
    """Read the command line after the word "evaluate".

    Raises:
        SystemExit: --help (0), or a value that does not make sense (2, after one line on stderr).
    """
    parser = _parser()
    found = parser.parse_args(arguments)
    if found.sequential and found.batch is not None:
        parser.error("--sequential and --batch exclude each other")
    if found.seed is not None and found.limit is None:
        parser.error("--seed draws the cases of a --limit; give both, or none")
    if found.ray and found.sequential:
        parser.error("--ray spreads cases, and those of --sequential hang together; leave one of the two out")
    if found.ray and ":" in found.device:
        parser.error(f"--device {found.device} is one GPU of one machine; with --ray use --device cuda")
    return EvaluateCommand(
        cases=found.cases,
        methods=found.methods,
        out=found.out,
        limit=found.limit,
        seed=found.seed,
        mode="sequential" if found.sequential else "each" if found.batch is None else "batch",
        batch=found.batch or 1,
        model=found.model,
        device=found.device,
        dtype=found.dtype,
        ray=found.ray,
        statistics=found.statistics or "",
    )


def _parser() -> Parser:
    parser = Parser(
        prog="python app.py evaluate",
        description="Measure how well edits work: every method on the same cases, in one report.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("cases", type=_file, metavar="CASES", help="the file of cases")
    parser.add_argument("--methods", type=_methods, default=_methods(METHODS), help=f"default: {METHODS}")
    parser.add_argument("--out", type=directory, required=True, metavar="DIR", help="where results and the report go")
    parser.add_argument("--limit", type=_count, metavar="N", help="only N cases: the first, or drawn by --seed")
    parser.add_argument("--seed", type=int, metavar="S", help="draw the cases of --limit")
    parser.add_argument("--batch", type=_count, metavar="N", help="apply N cases at once instead of one")
    parser.add_argument(
        "--sequential", action="store_true", help="one case after another into the same model, measured on the way"
    )
    parser.add_argument(
        "--ray",
        type=_ray,
        metavar="ADDRESS",
        help="measure on the workers of a Ray cluster: auto, local or host:port (needs: pip install ray)",
    )
    add_model_options(parser)
    add_statistics_option(parser)
    return parser


def _file(text: str) -> Path:
    path = Path(filled(text)).expanduser()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return path


def _methods(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"there is no method '{', '.join(unknown)}'; use some of {METHODS}")
    return names


def _ray(text: str) -> str:
    address = filled(text)
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local") and not (host and port.isdecimal() and port.isascii() and "/" not in host):
        raise argparse.ArgumentTypeError(f"'{address}' is not the address of a Ray cluster; use auto, local, host:port")
    return address


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)
