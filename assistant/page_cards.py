"""The cards of the page: a record of an event goes in, HTML comes out in which every outside word is escaped.

Buttons carry `data-do` (what) and `data-number` (which change); a press becomes an event of the component
that shows the card (see page_parts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from assistant.events import Exported, Notice
from assistant.page_text import escape, plain
from assistant.proposal import EditProposal, ProbeResult, ResultCard
from steam_engine.exports.names import FORMAT_NAMES
from steam_engine.types import JournalEntry, Progress

_KINDS = {
    "direct": ("Asked directly", "follows", "not yet"),
    "paraphrase": ("In other words", "follows", "not yet"),
    "multi-hop": ("Questions that follow from it", "follows", "not yet"),
    "locality": ("Facts that should stay", "kept", "changed"),
}


def statement(entry: JournalEntry) -> str:
    """What an edit taught, as a sentence (plain text): "The capital of France is Rome."."""
    opening = entry.edit.statements[0].replace("{}", entry.edit.subject)
    return f"{opening} {entry.edit.target}."


def undo_button(entry: JournalEntry) -> str:
    """A button that takes the change back, named for whoever cannot see where it stands."""
    return _action("undo", "Undo", entry)


def redo_button(entry: JournalEntry) -> str:
    """A button that makes the change again."""
    return _action("redo", "Redo", entry)


def _action(do: str, word: str, entry: JournalEntry) -> str:
    label = escape(f"{word} change {entry.number}: {statement(entry)}")
    return (
        f'<button type="button" class="am-small" data-do="{do}" data-number="{entry.number}" '
        f'aria-label="{label}" title="{label}">{word}</button>'
    )


def progress(step: Progress) -> str:
    """A stage with its bar; the bar has no end when the length is not known."""
    if step.total > 0:
        share = min(max(step.done / step.total, 0.0), 1.0)
        bar, count = f'value="{share:.3f}" max="1"', f"{step.done} of {step.total}"
    else:
        bar, count = "", ""
    detail = " · ".join(part for part in (count, step.detail) if part)
    return (
        '<div class="am-card am-progress">'
        f'<div class="am-stage"><strong>{escape(step.stage)}</strong><span>{escape(detail)}</span></div>'
        f'<progress aria-label="{escape(step.stage)}" {bar}></progress></div>'
    )


def proposal(found: EditProposal) -> str:
    """What is known about a change before it is made; its fields stand below in boxes that can be edited."""
    rows = [("Now it says", f"<q>{plain(found.old_answer)}</q>" if found.old_answer else "nothing yet")]
    if found.known_object:
        rows.append(("On record", escape(found.known_object)))
    rows.append(("Anchors", _several(found.anchors, " ", 3) or "none on record; the model's own words will do"))
    rows.append(("Protected", _several(found.neighbours, ", ", 6) or "no neighbours on record"))
    if found.conflicts:
        rows.append(("No longer true", _several(found.conflicts, " ", 3)))
    table = "".join(f"<div><dt>{term}</dt><dd>{content}</dd></div>" for term, content in rows)
    warning = f'<p class="am-warning"><strong>Careful.</strong> {plain(found.warning)}</p>' if found.warning else ""
    return (
        '<div class="am-proposal"><h2>Teach the model this?</h2>'
        f'<p class="am-statement">{escape(found.statement)}</p>'
        f'<dl class="am-facts">{table}</dl>{warning}</div>'
    )


def _several(names: Sequence[str], between: str, shown: int) -> str:
    more = f" (and {len(names) - shown} more)" if len(names) > shown else ""
    return escape(between.join(names[:shown]) + more)


def result(card: ResultCard, state: str) -> str:
    """Before and after of one change. `state` is the change's state now: active, undone or replaced."""
    entry = card.entry
    parts = [_probe_rows(kind, card.probes) for kind in _KINDS]
    button = undo_button(entry) if state == "active" else f'<span class="am-pill">{escape(state)}</span>'
    return (
        f'<section class="am-card am-result" aria-label="Result of change {entry.number}">'
        f'<header><div><h2><span class="am-number">Change {entry.number}</span> '
        f"{escape(statement(entry))}</h2>"
        f'<p class="am-measures">{escape(_measures(card))}</p></div>{button}</header>{_summary(card.probes)}'
        '<table class="am-probes"><thead><tr><th scope="col">Question</th><th scope="col">Before</th>'
        f'<th scope="col">After</th><th scope="col">Check</th></tr></thead>{"".join(parts)}</table></section>'
    )


def _summary(probes: Sequence[ProbeResult]) -> str:
    """How many questions of each kind went well, at a glance."""
    items = []
    for kind, (title, _, _) in _KINDS.items():
        right, judged = _count(kind, probes)
        if judged:
            mark, look = ("✓", "am-good") if right == judged else ("✗", "am-bad") if right == 0 else ("~", "")
            items.append(f'<li><span class="am-mark {look}">{mark} {right} of {judged}</span> {title}</li>')
    return f'<ul class="am-summary">{"".join(items)}</ul>' if items else ""


def _count(kind: str, probes: Sequence[ProbeResult]) -> tuple[int, int]:
    judged = [probe.passed for probe in probes if probe.kind == kind and probe.passed is not None]
    return sum(judged), len(judged)


def _measures(card: ResultCard) -> str:
    trace = card.entry.trace
    return (
        f"{card.seconds:.1f} s to change · {card.probe_seconds:.1f} s to check · "
        f"weights of layer {trace.layer} moved by {trace.weight_drift:.2%}"
    )


def _probe_rows(kind: str, probes: Sequence[ProbeResult]) -> str:
    mine = [probe for probe in probes if probe.kind == kind]
    if not mine:
        return ""
    title, good, bad = _KINDS[kind]
    right, judged = _count(kind, probes)
    count = f"{right} of {judged}" if judged else ""
    rows = "".join(
        f'<tr><td data-label="Question">{plain(probe.question)}</td>'
        f'<td data-label="Before">{plain(probe.before)}</td><td data-label="After">{plain(probe.after)}</td>'
        f'<td data-label="Check">{_mark(probe.passed, good, bad)}</td></tr>'
        for probe in mine
    )
    return (
        f'<tbody><tr class="am-kind"><th scope="rowgroup" colspan="4">{title} <span>{count}</span></th></tr>'
        f"{rows}</tbody>"
    )


def _mark(passed: bool | None, good: str, bad: str) -> str:
    if passed is None:
        return '<span class="am-mark">– not judged</span>'
    if passed:
        return f'<span class="am-mark am-good">✓ {good}</span>'
    return f'<span class="am-mark am-bad">✗ {bad}</span>'


def notice(told: Notice) -> str:
    """Plain lines, and a table when the notice carries rows."""
    text = f"<p>{plain(told.text)}</p>" if told.text else ""
    return f'<div class="am-card am-notice">{text}{_table(told.headers, told.rows)}</div>'


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{plain(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        '<div class="am-scroll" tabindex="0" role="region" aria-label="Table">'
        f'<table class="am-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def failure(message: str) -> str:
    """One clear sentence about what went wrong."""
    return f'<div class="am-card am-failure" role="alert"><strong>That did not work.</strong> {plain(message)}</div>'


def export(done: Exported) -> str:
    """Where an export is, what the written copy answered, and its archive to download."""
    answers = "".join(
        f"<div><dt>{plain(question)}</dt><dd>✓ {plain(answer)}</dd></div>" for question, answer in done.answers
    )
    checked = (
        f'<p>Read back with {plain(done.reader)}, it answered:</p><dl class="am-facts">{answers}</dl>'
        if answers
        else ""
    )
    label = next((format.label for format in FORMAT_NAMES if format.name == done.format), done.format)
    link = ""
    if done.archive is not None:
        name, address = escape(done.archive.name), escape(download_address(done.archive))
        link = f'<a class="am-download" href="{address}" download="{name}">Download {name}</a>'
    return (
        f'<div class="am-card am-export"><h3>{escape(label)}: {escape(done.path.name)}</h3>'
        f'<p class="am-measures">{size(done.bytes)} · {done.seconds:.1f} s · on the server in '
        f"<code>{escape(str(done.path))}</code></p>{checked}{link}</div>"
    )


def download_address(archive: Path) -> str:
    """The address of a file in the exports folder, relative to the page."""
    return "gradio_api/file=" + quote(str(archive.resolve()))


def size(count: int) -> str:
    """Bytes for people: 1234567 -> "1.2 MB"."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
