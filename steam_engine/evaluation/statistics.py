"""Rates with confidence intervals, and paired tests between methods. Cases are the unit: a case's questions hang
together, so whole cases are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_DRAWS = 10_000


@dataclass(frozen=True)
class Rate:
    """Right answers among those that count, with a 95 % interval (percentile bootstrap over cases)."""

    right: int
    asked: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The rate; 0 where nothing was asked."""
        return self.right / self.asked if self.asked else 0.0


def rate(cases: Sequence[tuple[int, int]], seed: int = 0) -> Rate:
    """Pools (right, asked) of every case."""
    counts = np.array([c for c in cases if c[1]], dtype=float).reshape(-1, 2)
    right, asked = (int(n) for n in counts.sum(0))
    if len(counts) == 0:
        return Rate(0, 0, 0.0, 0.0)
    low, high = np.quantile(_pooled(counts, seed), [0.025, 0.975])
    return Rate(right, asked, float(low), float(high))


def _pooled(counts: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Rates [n_draws] of cases drawn with replacement."""
    drawn = np.random.default_rng(seed).integers(0, len(counts), (N_DRAWS, len(counts)))
    sums = counts[drawn].sum(1)
    rates: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
    return rates


@dataclass(frozen=True)
class Comparison:
    """Two methods on the questions that both were asked."""

    difference: float  # rate of the first - rate of the second
    p: float  # two-sided, by random exchanges of the two methods within cases
    first_only: int  # questions that only the first answers rightly
    second_only: int


def compare(first: Mapping[int, Sequence[bool]], second: Mapping[int, Sequence[bool]], seed: int = 0) -> Comparison:
    """A paired permutation test.

    Args:
        first, second: for each case, right or wrong of the same questions in the same order; cases that only one of
            them has are left out.
        seed: of the exchanges.
    """
    cases = [case for case in first if case in second and len(first[case]) == len(second[case]) and first[case]]
    pairs = [(a, b) for case in cases for a, b in zip(first[case], second[case], strict=True)]
    if not pairs:
        return Comparison(0.0, 1.0, 0, 0)
    by_case = np.array([sum(first[case]) - sum(second[case]) for case in cases], dtype=float)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (N_DRAWS, len(cases)))
    extreme = np.abs(signs @ by_case) >= abs(by_case.sum()) - 1e-9
    return Comparison(
        difference=float(by_case.sum()) / len(pairs),
        p=float((extreme.sum() + 1) / (N_DRAWS + 1)),
        first_only=sum(a and not b for a, b in pairs),
        second_only=sum(b and not a for a, b in pairs),
    )
