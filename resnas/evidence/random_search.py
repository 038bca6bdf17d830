"""What random search finds with n draws: the distribution of the best of n, drawn from values that are known.

Exact, by order statistics, with nothing sampled: of N values in order from the best, the best of n drawn without
replacement comes after the first k with probability C(N − k, n) / C(N, n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from resnas.evidence.intervals import CONFIDENCE


class BestOf(NamedTuple):
    """The best of n draws: its mean, and the middle 90 % of its distribution."""

    n: int
    mean: float
    low: float
    high: float


def best_of_random(values: Sequence[float], *, least: bool = True) -> list[BestOf]:
    """Return the best of n values drawn without replacement, for each n from 1 to their number.

    Args:
        values: finite numbers, one per architecture that was drawn at random.
        least: whether less is better.
    """
    count = len(values)
    if not count:
        return []
    ordered = np.sort(np.asarray(values, dtype=float))
    ordered = ordered if least else ordered[::-1]
    reached = 1 - _none_of_the_first(count)
    probability = np.diff(reached, axis=1)
    tail = (1 - CONFIDENCE) / 2
    ends = [ordered[(reached[:, 1:] >= share - 1e-12).argmax(axis=1)] for share in (tail, 1 - tail)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    means = probability @ ordered
    return [BestOf(n + 1, float(means[n]), float(low[n]), float(high[n])) for n in range(count)]


def _none_of_the_first(count: int) -> np.ndarray:
    """Return [n − 1, k]: the probability that n draws hold none of the first k values, for k from 0 to `count`."""
    drawn, first = np.arange(count)[:, None], np.arange(count + 1)[None, :]
    return np.cumprod(np.maximum(count - first - drawn, 0) / (count - drawn), axis=0)
