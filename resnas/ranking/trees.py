"""The second surrogate, unlike the first: extremely randomised trees (Geurts et al., 2006)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from resnas.ranking.columns import Encoded, Unit
from resnas.ranking.design import Indices, Vector
from resnas.ranking.ridge import Split

TREES = 25
SMALLEST_LEAF = 2
PERMUTATIONS = 3
"""Of each unit in each held-out fold."""


def second_opinion(
    encoded: Encoded, target: Vector, splits: Sequence[Split], random: np.random.Generator
) -> tuple[float, Vector]:
    """Return the held-out R² of the trees and their permutation importance per unit [units]."""
    error = np.zeros(len(target))
    permuted_error = np.zeros((len(encoded.units), len(target)))
    times = np.zeros(len(target))
    for training, testing in splits:
        trees = ExtraTreesRegressor(
            TREES, min_samples_leaf=SMALLEST_LEAF, n_jobs=1, random_state=int(random.integers(2**31))
        )
        trees.fit(encoded.matrix[training], target[training])
        copies = permuted_copies(encoded.matrix[testing], encoded.units, testing, random)
        predicted = trees.predict(np.concatenate([encoded.matrix[testing], *copies]))
        own, of_copies = predicted[: len(testing)], predicted[len(testing) :]
        error[testing] += (target[testing] - own) ** 2
        of_copies = of_copies.reshape(len(encoded.units), PERMUTATIONS, len(testing))
        permuted_error[:, testing] += ((target[testing] - of_copies) ** 2).mean(axis=1)
        times[testing] += 1
    error, permuted_error = error / times, permuted_error / times
    r2 = 1 - error.sum() / ((target - target.mean()) ** 2).sum()
    importance = [
        np.sqrt(permuted[unit.rows].mean()) - np.sqrt(error[unit.rows].mean())
        for unit, permuted in zip(encoded.units, permuted_error, strict=True)
    ]
    return float(r2), np.array(importance)


def permuted_copies(
    matrix: np.typing.NDArray[np.float32], units: Sequence[Unit], rows: Indices, random: np.random.Generator
) -> np.typing.NDArray[np.float32]:
    """Return [units · permutations, rows, columns]: copies in which a unit's columns are permuted among the rows of
    `matrix` that take part; `rows` are their numbers in the study."""
    copies = np.repeat(matrix[None], len(units) * PERMUTATIONS, axis=0)
    for position, unit in enumerate(units):
        taking_part = np.flatnonzero(unit.rows[rows])
        for copy in copies[position * PERMUTATIONS : (position + 1) * PERMUTATIONS]:
            copy[np.ix_(taking_part, unit.columns)] = matrix[np.ix_(random.permutation(taking_part), unit.columns)]
    return copies
