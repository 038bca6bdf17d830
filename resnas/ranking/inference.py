"""How sure: bootstrap over architectures, shuffled-target nulls, corrected p-values, the noise ceiling and the gate."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearson3, skew

from resnas.evidence import CONFIDENCE
from resnas.ranking.design import Indices, Vector
from resnas.ranking.result import interval, number
from resnas.ranking.ridge import HeldOut

SMALLEST_R2 = 0.02
"""The held-out R² below which nothing is ranked, whatever the shuffled targets say: what explains less is of no use."""
LARGEST_P = 0.05
LARGEST_SUGGESTIVE_P = 0.2
SMALLEST_SECOND_SHARE = 0.02
"""The importance for the second surrogate, over the held-out error, from which on it counts as agreement. In planted
studies nine of ten useless properties stay below, and one in a hundred real ones."""
OUTER_FENCE = 3.0
"""Interquartile ranges from the quartiles (Tukey, 1977)."""
MOST_GROWTH = 4
"""Studies larger than this many times the present one are not projected."""


def draw_in_outliers(target: Vector) -> tuple[Vector, int]:
    """Return the target with values beyond Tukey's outer fences (three interquartile ranges from the quartiles) set to
    the fence, and how many there were: one wild trial must not rule a ranking."""
    low, high = np.quantile(target, [0.25, 0.75])
    fences = low - OUTER_FENCE * (high - low), high + OUTER_FENCE * (high - low)
    if fences[0] == fences[1]:  # more than half of the values are equal
        return target, 0
    drawn_in: Vector = np.clip(target, *fences)
    return drawn_in, int((drawn_in != target).sum())


def bootstrap_rows(count: int, fewest: int, random: np.random.Generator) -> Indices:
    """Draw architectures with replacement; at least `fewest` distinct ones, so that folds exist."""
    drawn = random.integers(count, size=count)
    while len(np.unique(drawn)) < fewest:
        drawn = random.integers(count, size=count)
    return drawn


def r2_interval(result: HeldOut, random: np.random.Generator, draws: int = 1000) -> tuple[float, float]:
    """Return the interval of the held-out R² of the first target when architectures are drawn anew (no refit)."""
    target, error = result.target[:, 0], result.squared_error[:, 0]
    count = len(target)
    weights = random.multinomial(count, np.full(count, 1 / count), size=draws) / count
    variance = weights @ target**2 - (weights @ target) ** 2
    usable = variance > 1e-12 * target.var()
    low, high = np.quantile(1 - (weights @ error)[usable] / variance[usable], _tails())
    return float(low), float(high)


def shifted_interval(estimate: Vector, draws: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """Return the bootstrap interval around the estimate: quantiles of the draws [draws, values], moved to the estimate.

    A bootstrap study has only about 63 % of the distinct architectures, so its surrogate is worse and its importances
    smaller than those of the study itself; the spread is kept and that bias taken out.
    """
    low, middle, high = np.nanquantile(draws, [_tails()[0], 0.5, _tails()[1]], axis=0)
    return estimate + low - middle, estimate + high - middle


def reflected_interval(estimate: Vector, draws: NDArray[np.float64]) -> tuple[Vector, Vector, Vector]:
    """Return the estimate corrected for its bias, and its interval, from bootstrap draws [draws, values].

    The highest of several noisy means is too high, and in the draws it is too high once more; what the draws have more
    than the estimate is therefore taken off the estimate (the basic bootstrap, Davison & Hinkley, 1997).
    """
    low, middle, high = np.nanquantile(draws, [_tails()[0], 0.5, _tails()[1]], axis=0)
    return 2 * estimate - middle, 2 * estimate - high, 2 * estimate - low


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def p_value_above(observed: float, null: Vector) -> float:
    """Return the share of null values that reach the observed one, which counts as one of them (never 0)."""
    return float((1 + (null >= observed).sum()) / (1 + len(null)))


def p_values_above(observed: Vector, null: NDArray[np.float64]) -> Vector:
    """Return the chance of each observed value [units] or more under its null values [shuffles, units].

    From a Pearson type III distribution with the mean, variance and skewness of the null values, as is usual for
    permutation tests where small p-values are asked of few shuffles (Winkler et al., 2016).
    """
    centre, spread = null.mean(axis=0), null.std(axis=0)
    varies = spread > 1e-12 * np.maximum(np.abs(observed), np.abs(centre))
    tail = pearson3.sf(observed, skew(null, axis=0), loc=centre, scale=np.where(varies, spread, 1.0))
    empirical = (1 + (null >= observed).sum(axis=0)) / (1 + len(null))
    found: Vector = np.where(varies, tail, empirical)
    return found


def holm(p_values: Vector) -> Vector:
    """Return p-values corrected for their number (Holm, 1979): the chance of any false finding is controlled, whatever
    depends on whatever."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * factors))
    return corrected


def noise_ceiling(target: Vector, groups: Indices) -> float | None:
    """Return 1 − variance of an architecture's mean due to its seeds / variance of these means, at least 0; None
    without replicates.

    Args:
        target: of each trial.
        groups: number of each trial's architecture.
    """
    sizes = np.bincount(groups)
    freedom = int((sizes - 1).sum())
    means = np.bincount(groups, target) / sizes
    total = float(means.var(ddof=1)) if len(means) > 1 else 0.0
    if freedom == 0:
        return None
    if total == 0:
        return 0.0
    within = float(((target - means[groups]) ** 2).sum()) / freedom
    return max(0.0, 1 - within * float((1 / sizes).mean()) / total)


def trials_for_r2(trials: int, r2: float, r2_of_half: float, aim: float = SMALLEST_R2) -> int | None:
    """Estimate how many more trials would bring the held-out R² to `aim`; None where none up to fourfold would.

    From R² at all and at half of the architectures, with the learning curve R²(n) = limit − slope/n: the error of most
    learners falls about as 1/n towards what cannot be learned. Two noisy points, so it is a rough guide.
    """
    slope = (r2 - r2_of_half) * trials
    limit = 2 * r2 - r2_of_half
    if slope <= 0 or limit <= aim:
        return None
    more = max(1, math.ceil(slope / (limit - aim)) - trials)
    return more if trials + more <= MOST_GROWTH * trials else None


def refusal_of_counts(trials: int, architectures: int, minimum_trials: int, minimum_architectures: int) -> str | None:
    """Say that there are too few trials or architectures, and how many more are needed; None where there are enough."""
    missing = max(minimum_trials - trials, minimum_architectures - architectures)
    if missing <= 0:
        return None
    return (
        f"no reliable ranking: {trials} completed trials of {architectures} architectures are too few, at least "
        f"{minimum_trials} trials and {minimum_architectures} architectures are needed: {missing} more trials of new "
        "architectures"
    )


def refusal_of_quality(
    r2: float, bounds: tuple[float, float], p_value: float, trials: int, more: int | None
) -> str | None:
    """Say that the surrogate predicts too little, or no better than on shuffled targets; None where it passes.

    Where only the shuffles are not beaten, as many trials again is a rule of thumb: it halves the variance of R².
    """
    found = f"no reliable ranking: held-out R² = {number(r2)} {interval(*bounds)}"
    if r2 < SMALLEST_R2:
        hope = (
            f"about {more} more trials may be needed"
            if more is not None
            else f"even {(MOST_GROWTH - 1) * trials} more trials are not projected to be enough; replicates, longer "
            "training or a wider space may help"
        )
        return f"{found} is below {SMALLEST_R2:.2f}; {hope}"
    if p_value >= LARGEST_P:
        worse = f"{found} is no better than with shuffled targets (p = {p_value:.2f})"
        return f"{worse}; about {trials} more trials may be needed"
    return None
