"""From results to a report: numbers as JSON, tables as Markdown."""

from __future__ import annotations

import json
import statistics as basic
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from steam_engine.errors import EvaluationError
from steam_engine.evaluation.case import Kind
from steam_engine.evaluation.reading import Skipped
from steam_engine.evaluation.results import Failed, Plan, Result
from steam_engine.evaluation.statistics import Comparison, Rate, compare, rate
from steam_engine.journal import write_atomically

KINDS: tuple[Kind, ...] = ("direct", "paraphrase", "multi_hop", "locality")
TITLES = {
    "direct": "direct",
    "paraphrase": "paraphrase",
    "multi_hop": "multi-hop",
    "locality": "locality",
    "answerable": "multi-hop, answerable",
}


@dataclass(frozen=True)
class Summary:
    """One method after some number of edits. Medians are over cases."""

    method: str
    done: int
    cases: int
    refused: int  # edits
    rates: dict[str, Rate]
    seconds: float
    steps: float
    peak_mib: float  # the highest
    drift: float
    perplexity_ratio: float
    fluency: float


@dataclass(frozen=True)
class Report:
    """Everything that was measured."""

    plan: Plan
    skipped: tuple[Skipped, ...]
    summaries: tuple[Summary, ...]
    comparisons: dict[str, dict[str, Comparison]]  # "steam - rome" -> kind -> test
    failed: tuple[Failed, ...] = ()


def make_report(
    plan: Plan, skipped: Sequence[Skipped], results: Sequence[Result], failed: Sequence[Failed] = ()
) -> Report:
    """Summarises results by method and number of edits, and compares methods pairwise."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        done = result.done if plan.mode == "sequential" else min(plan.size, len(plan.numbers))
        groups.setdefault((result.method, done), []).append(result)
    last = max((done for _, done in groups), default=0)
    final = {method: found for (method, done), found in groups.items() if done == last}
    comparisons: dict[str, dict[str, Comparison]] = {
        f"{a} - {b}": {kind: compare(_right(final[a], kind), _right(final[b], kind)) for kind in KINDS}
        for a, b in combinations(final, 2)
    }
    ordered = sorted(groups.items(), key=lambda item: item[0][1])  # methods stay as they were run
    summaries = tuple(_summary(method, done, found) for (method, done), found in ordered)
    return Report(plan, tuple(skipped), summaries, comparisons, tuple(failed))


def _right(results: Sequence[Result], kind: Kind) -> dict[int, list[bool]]:
    return {r.case: [a.right for a in r.asked if a.kind == kind and a.counts] for r in results}


def _summary(method: str, done: int, results: Sequence[Result]) -> Summary:
    rates: dict[str, Rate] = {
        kind: rate([(sum(right), len(right)) for right in _right(results, kind).values()]) for kind in KINDS
    }  # every question of the kind that counts
    answerable = [[a.right for a in r.asked if a.kind == "multi_hop" and a.answerable] for r in results]
    rates["answerable"] = rate([(sum(right), len(right)) for right in answerable])

    def median(name: str) -> float:
        return float(basic.median(getattr(r, name) for r in results))

    return Summary(
        method=method,
        done=done,
        cases=len(results),
        refused=sum(len(r.errors) for r in results),
        rates=rates,
        seconds=median("seconds"),
        steps=median("steps"),
        peak_mib=max(r.peak_mib for r in results),
        drift=median("drift"),
        perplexity_ratio=median("perplexity_ratio"),
        fluency=median("fluency"),
    )


def as_json(report: Report) -> str:
    """The report as JSON; every rate carries its value."""
    data = {
        "plan": report.plan.model_dump(mode="json"),
        "skipped": [asdict(row) for row in report.skipped],
        "failed": [asdict(case) for case in report.failed],
        "methods": [
            {**asdict(s), "rates": {kind: {**asdict(r), "value": r.value} for kind, r in s.rates.items()}}
            for s in report.summaries
        ],
        "comparisons": {
            pair: {kind: asdict(test) for kind, test in tests.items()} for pair, tests in report.comparisons.items()
        },
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


def as_markdown(report: Report) -> str:
    """The report as tables."""
    plan = report.plan
    how = {
        "each": "every case on the clean model",
        "batch": f"{plan.size} edits at once, then the clean model again",
        "sequential": "all cases one after another in one model",
    }[plan.mode]
    lines = [
        "# Evaluation",
        "",
        f"Model {plan.model} ({plan.dtype}), {len(plan.numbers)} cases, {how}.",
        "",
        "An answer is right when it names an accepted object; questions are answered greedily in chat, unfinished "
        "sentences are continued. Locality counts questions that the unedited model answers rightly. In brackets: 95 % "
        "intervals, bootstrap over cases.",
        "",
    ]
    kinds = [kind for kind in TITLES if any(s.rates[kind].asked for s in report.summaries)]
    head = ["method", *(["edits"] if plan.mode == "sequential" else []), *(TITLES[kind] for kind in kinds)]
    rows = [
        [s.method, *([str(s.done)] if plan.mode == "sequential" else []), *(_percent(s.rates[kind]) for kind in kinds)]
        for s in report.summaries
    ]
    lines += [*_table(head, rows), ""]
    head = [
        "method",
        "edits",
        "refused",
        "seconds an edit",
        "steps",
        "peak MiB",
        "drift (nats)",
        "perplexity",
        "fluency",
    ]
    rows = [
        [
            s.method, str(s.done), str(s.refused), f"{s.seconds:.2f}", f"{s.steps:.0f}", f"{s.peak_mib:.0f}",
            f"{s.drift:.4f}", f"x {s.perplexity_ratio:.3f}", f"{s.fluency:.2f}",
        ]
        for s in report.summaries
    ]  # fmt: skip
    lines += [
        *_table(head, rows),
        "",
        "Medians over cases; seconds and steps of an edit; the highest peak memory.",
        "",
    ]
    if report.comparisons:
        lines += ["## Paired tests", "", "Difference of rates, and p by exchanging the methods within cases.", ""]
        shown = [kind for kind in KINDS if kind in kinds]
        rows = [
            [pair, *(f"{tests[kind].difference:+.0%} (p = {tests[kind].p:.3f})" for kind in shown)]
            for pair, tests in report.comparisons.items()
        ]
        lines += [*_table(["methods", *(TITLES[kind] for kind in shown)], rows), ""]
    if report.failed:
        rows = [[str(f.case), f.method, f.reason] for f in report.failed]
        lines += ["## Cases that could not be measured", "", "They are missing above; a new run tries them again.", ""]
        lines += [*_table(["case", "method", "why"], rows), ""]
    if report.skipped:
        lines += ["## Rows left out", "", *(f"- {row.number}: {row.reason}" for row in report.skipped), ""]
    return "\n".join(lines)


def _percent(found: Rate) -> str:
    if not found.asked:
        return "-"
    return f"{found.right}/{found.asked} = {found.value:.0%} ({found.low:.0%} to {found.high:.0%})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def write_report(report: Report, directory: Path) -> tuple[Path, Path]:
    """Writes report.json and report.md.

    Raises:
        EvaluationError: the disk refused.
    """
    paths = directory / "report.json", directory / "report.md"
    try:
        for path, text in zip(paths, (as_json(report), as_markdown(report)), strict=True):
            write_atomically(path, text.encode())
    except OSError as error:
        raise EvaluationError(f"The report could not be written to {directory}: {error.strerror}") from error
    return paths
