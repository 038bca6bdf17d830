"""Whether the leading properties act on one another: the size of their products in the surrogate, against chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from sklearn.linear_model import Ridge

from resnas.ranking.design import Design, Indices, Vector
from resnas.ranking.inference import holm, p_values_above
from resnas.ranking.nulls import without

MOST_UNITS = 4
"""So many leading units are looked at in pairs."""


@dataclass(frozen=True)
class PairOfUnits:
    """The interaction of two units (their positions): its size in units of the target, and its corrected p-value."""

    one: int
    other: int
    size: float
    p_value: float


def interactions(
    design: Design, target: Vector, penalty: float, units: Sequence[int], shuffled: Sequence[Indices]
) -> list[PairOfUnits]:
    """Return the interaction of each pair of units, the strongest first.

    Its size is the standard deviation over the rows of what the products of the two contribute to the fit. The null of
    each pair: the fit without these products plus its residuals in another order; p-values are corrected for the
    number of pairs.
    """
    pairs = [(pair, features) for pair in combinations(units, 2) if len(features := _products(design, *pair))]
    if not pairs:
        return []
    sizes = np.array([_sizes(design, target[:, None], penalty, features)[0] for _, features in pairs])
    null = []
    for _, features in pairs:
        rest = np.setdiff1d(np.arange(design.features.shape[1]), features)
        null.append(_sizes(design, without(design, rest, target, penalty, shuffled), penalty, features))
    p_values = holm(p_values_above(sizes, np.stack(null, axis=1)))
    found = [
        PairOfUnits(*pair, float(size), float(p_value))
        for (pair, _), size, p_value in zip(pairs, sizes, p_values, strict=True)
    ]
    return sorted(found, key=lambda one: -one.size)


def _products(design: Design, one: int, other: int) -> Indices:
    """Return the features that are a product of the two units; empty where one moves along with the other."""
    first, second = design.parts[one].moved, design.parts[other].moved
    if np.intersect1d(first, second).size:
        return np.zeros(0, dtype=np.intp)
    here, there = np.isin(design.factors, first), np.isin(design.factors, second)
    return np.flatnonzero((here[:, 0] & there[:, 1]) | (here[:, 1] & there[:, 0]))


def _sizes(design: Design, targets: np.typing.NDArray[np.float64], penalty: float, features: Indices) -> Vector:
    coefficients = Ridge(penalty).fit(design.features, targets).coef_.reshape(targets.shape[1], -1).T
    contributions = design.features[:, features] @ coefficients[features]
    spread: Vector = contributions.std(axis=0)
    return spread
