"""Intervals of a mean, of a difference of two means, and of a share; None where the numbers cannot tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.90
"""The share of intervals that hold the truth."""


class Interval(NamedTuple):
    """The lower and the upper end."""

    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's 90 % interval of the mean of independent values; None of fewer than two.

    With the few values that a report has, a bootstrap interval of a mean is too narrow, and this one is not.
    """
    if len(values) < 2:
        return None
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return Interval(middle - float(half), middle + float(half))


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return Welch's 90 % interval of mean(first) − mean(second); None where one has fewer than two values, or none
    varies."""
    if min(len(first), len(second)) < 2 or np.ptp(first) + np.ptp(second) == 0:
        return None
    found = stats.ttest_ind(first, second, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(float(found.low), float(found.high))


def share_interval(count: int, total: int) -> Interval:
    """Return Wilson's 90 % interval of a share of which `count` of `total` were seen.

    Raises:
        ValueError: `total` is 0, or less than `count`.
    """
    found = stats.binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(found.low), float(found.high))
