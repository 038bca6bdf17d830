"""Whether two numbers rise together: Spearman's rank correlation, within strata, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from resnas.evidence.intervals import CONFIDENCE

FEWEST_FOR_INTERVAL = 8
"""Pairs; of fewer, resampling knows too little to give an interval."""
FEWEST_FOR_VALUE = 3
DRAWS = 2000

Vector = NDArray[np.float64]


class Correlation(NamedTuple):
    """A rank correlation from −1 to 1 over n pairs; None where the pairs are too few, or one side never varies."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and self.low * self.high > 0


def rank_correlation(
    first: Sequence[float], second: Sequence[float], strata: Sequence[Hashable] | None = None, *, seed: int
) -> Correlation:
    """Return Spearman's correlation of pairs, and its 90 % interval: the percentile bootstrap, resampling pairs.

    With strata, ranks are taken within each, divided by its size + 1, and centred, so that only what varies within
    strata counts; pairs are resampled within strata. With one stratum this is Spearman's correlation.

    Args:
        first: finite numbers, one per architecture.
        second: the same of another metric.
        strata: which stratum (a depth, say) each pair belongs to.
        seed: of the resampling.
    """
    pairs = np.column_stack([np.asarray(first, dtype=float), np.asarray(second, dtype=float)])
    groups = _groups(strata if strata is not None else [0] * len(pairs))
    count = sum(len(group) for group in groups if len(group) > 1)
    value = _correlations([pairs[group][None] for group in groups], count)[0]
    if count < FEWEST_FOR_INTERVAL or not np.isfinite(value):
        return Correlation(float(value) if np.isfinite(value) else None, None, None, count)
    random = np.random.default_rng(seed)
    drawn = [pairs[group[random.integers(len(group), size=(DRAWS, len(group)))]] for group in groups]
    values = _correlations(drawn, count)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values[np.isfinite(values)], [tail, 100 - tail])
    return Correlation(float(value), float(low), float(high), count)


def _groups(strata: Sequence[Hashable]) -> list[NDArray[np.intp]]:
    """Return the positions of each stratum."""
    return [
        np.array([position for position, one in enumerate(strata) if one == stratum], dtype=np.intp)
        for stratum in dict.fromkeys(strata)
    ]


def _correlations(strata: Sequence[NDArray[np.float64]], count: int) -> Vector:
    """Return one correlation per draw, NaN where it is not defined, of strata [draws, pairs, 2]."""
    draws = len(strata[0]) if strata else 1
    if count < FEWEST_FOR_VALUE:
        return np.full(draws, np.nan)
    product, first, second = np.zeros(draws), np.zeros(draws), np.zeros(draws)
    for pairs in strata:
        ranks = rankdata(pairs, axis=1) / (pairs.shape[1] + 1) - 0.5
        product += (ranks[..., 0] * ranks[..., 1]).sum(axis=1)
        first += (ranks[..., 0] ** 2).sum(axis=1)
        second += (ranks[..., 1] ** 2).sum(axis=1)
    size, values = np.sqrt(first * second), np.full(draws, np.nan)
    np.divide(product, size, out=values, where=size > 1e-12)
    return values
