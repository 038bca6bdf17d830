"""Paired differences of one metric: mean, interval, effect size, p-value; levels of repeated looks; seeds still needed.

Pure numbers. Hedges' correction: Hedges, Journal of Educational Statistics 6 (1981). Levels: Bonferroni over claims,
and α/(k(k+1)) for the k-th look, which sum to α however often one looks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln
from scipy.stats import nct, norm, t

FAMILY_ERROR = 0.1
"""Chance that any interval of a family, at any look, misses its true difference."""
POWER = 0.8
MOST_SEEDS = 100
"""Further seeds beyond which their number is not said."""


@dataclass(frozen=True)
class Paired:
    """What n pairs say about one metric; None where n is too small. Differences are in units of the metric."""

    n: int
    """Pairs in which both values are finite."""
    difference: float | None
    """Mean of (to − from)."""
    deviation: float | None
    """Standard deviation of the differences; needs two pairs."""
    low: float | None
    high: float | None
    """Interval of the mean difference, Student's t at the error asked for; needs two pairs."""
    effect_size: float | None
    """Cohen's d_z, corrected for few pairs as Hedges does; needs three pairs that differ in their differences."""
    p: float | None
    """Two-sided paired t-test, not corrected for other claims or looks; needs two pairs."""


def compare(before: Sequence[float], after: Sequence[float], error: float) -> Paired:
    """Return what the pairs (before[i], after[i]) say.

    Args:
        before: values of the one arm, one per seed; NaN where the run failed.
        after: values of the other arm for the same seeds.
        error: two-sided error of the interval, 0 to 1.
    """
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    differences = differences[np.isfinite(differences)]
    n = len(differences)
    if n < 2:
        return Paired(n, float(differences[0]) if n else None, None, None, None, None, None)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    standard_error = deviation / math.sqrt(n)
    reach = float(t.isf(error / 2, n - 1)) * standard_error
    is_spread = n > 2 and deviation > 0
    return Paired(
        n=n,
        difference=mean,
        deviation=deviation,
        low=mean - reach,
        high=mean + reach,
        effect_size=hedges(n - 1) * mean / deviation if is_spread else None,
        p=float(2 * t.sf(abs(mean) / standard_error, n - 1)) if deviation > 0 else float(mean == 0),
    )


def hedges(degrees: int) -> float:
    """Return the exact factor that makes a standardised mean with so many degrees of freedom (at least 2) unbiased."""
    return float(np.exp(gammaln(degrees / 2) - gammaln((degrees - 1) / 2)) / math.sqrt(degrees / 2))


def error_of_look(look: int, claims: int) -> float:
    """Return the two-sided error of each interval at the `look`-th look (1, 2, …) at so many claims together."""
    return FAMILY_ERROR / (claims * look * (look + 1))


def more_seeds(found: Paired, negligible: float, error: float) -> int | None:
    """Return how many further seeds would decide with 80 % power; None for more than 100.

    Decided is a difference whose interval lies on one side of 0 or within ± `negligible`. The true one is taken to be
    the one seen, whatever was claimed.

    Args:
        found: of at least two pairs.
        negligible: in units of the metric, at least 0; 0 where no difference is too small to matter.
        error: two-sided error of the interval that will decide, that of the next look.
    """
    assert found.difference is not None
    assert found.deviation is not None
    if found.deviation == 0:
        return 1 if found.difference or negligible else None
    size, margin = abs(found.difference) / found.deviation, negligible / found.deviation
    every = range(1, MOST_SEEDS + 1)
    at = bisect_left(every, True, key=lambda more: _power(size, margin, found.n + more, error) >= POWER)
    return every[at] if at < MOST_SEEDS else None


def _power(size: float, margin: float, n: int, error: float) -> float:
    """Return the chance that the interval of n pairs lies on the true side of 0 or within ± `margin`, whichever is more
    likely; both in standard deviations. The second takes the deviation that is measured for the true one."""
    root, quantile = math.sqrt(n), float(t.isf(error / 2, n - 1))
    within = norm.cdf((margin - size) * root - quantile) - norm.cdf((-margin - size) * root + quantile)
    return max(float(nct.sf(quantile, n - 1, size * root)), float(within))
