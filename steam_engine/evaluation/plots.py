"""The report as pictures: rates by method, and how they change with the number of edits."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from steam_engine.errors import EvaluationError
from steam_engine.evaluation.report import KINDS, TITLES, Report, Summary


def rates_figure(report: Report) -> Figure:
    """Bars with intervals, a group for every kind of question, after the last edit of each method."""
    last = {s.method: s for s in report.summaries}
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(last))
    for i, (method, summary) in enumerate(last.items()):
        rates = [summary.rates[kind] for kind in KINDS]
        below = [max(0.0, r.value - r.low) for r in rates]
        above = [max(0.0, r.high - r.value) for r in rates]
        places = [k + (i - (len(last) - 1) / 2) * width for k in range(len(KINDS))]
        axes.bar(places, [r.value for r in rates], width, yerr=[below, above], capsize=2, label=method)
    axes.set_xticks(range(len(KINDS)), [TITLES[kind] for kind in KINDS])
    _share_axis(axes)
    axes.legend(ncols=len(last), loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    return figure


def curves_figure(report: Report) -> Figure:
    """Rates and perplexity over the number of edits, a line for every method."""
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    panels = figure.subplots(1, len(KINDS) + 1)
    methods: dict[str, list[Summary]] = {}
    for summary in report.summaries:
        methods.setdefault(summary.method, []).append(summary)
    for axes, kind in zip(panels, KINDS, strict=False):
        for method, found in methods.items():
            axes.plot([s.done for s in found], [s.rates[kind].value for s in found], marker="o", label=method)
        axes.set_title(TITLES[kind])
        _share_axis(axes)
    for method, found in methods.items():
        panels[-1].plot([s.done for s in found], [s.perplexity_ratio for s in found], marker="o", label=method)
    panels[-1].set_title("perplexity, times the unedited model's")
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlabel("edits")
    panels[0].legend(frameon=False)
    return figure


def _share_axis(axes: Axes) -> None:
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("right answers")
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:.0%}")


def write_plots(report: Report, directory: Path) -> list[Path]:
    """Writes rates.png, and curves.png for a sequence.

    Raises:
        EvaluationError: the disk refused.
    """
    figures = {"rates.png": rates_figure(report)}
    if report.plan.mode == "sequential":
        figures["curves.png"] = curves_figure(report)
    try:
        for name, figure in figures.items():
            FigureCanvasAgg(figure).print_png(directory / name)
    except OSError as error:
        raise EvaluationError(f"The plots could not be written to {directory}: {error.strerror}") from error
    return [directory / name for name in figures]
