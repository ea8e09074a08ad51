"""Asks the model the questions that show what an edit did, and judges its answers."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.proposal import ProbeResult
from knowledge_store.types import Probe
from steam_engine.text import mentions


def judge(probes: Sequence[Probe], before: Sequence[str], after: Sequence[str]) -> tuple[ProbeResult, ...]:
    """Compare answers from before and after an edit.

    An answer is right when it holds an accepted name as whole words, whatever its case. A locality question
    that was not answered right before the edit says nothing about it: `passed` is None.

    Args:
        probes: the questions.
        before, after: one answer to each.
    """
    return tuple(_judged(probe, old, new) for probe, old, new in zip(probes, before, after, strict=True))


def _judged(probe: Probe, before: str, after: str) -> ProbeResult:
    right_before = mentions(before, probe.accept)
    right: bool | None = mentions(after, probe.accept)
    if probe.kind == "locality" and not right_before:
        right = None
    return ProbeResult(probe.kind, probe.question, before, after, probe.accept, right, right_before)
