"""The surrogate, and what it is worth on architectures that it never saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import GroupKFold

from resnas.ranking.columns import Unit

TREES = 25
SMALLEST_LEAF = 2

Matrix = NDArray[np.float32]
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


class Surrogate(Protocol):
    """Anything that predicts targets [rows] from a matrix [rows, columns]."""

    def predict(self, matrix: Matrix) -> Vector:
        """Return the predicted target of each row."""
        ...


Fit = Callable[[Matrix, Vector, int], Surrogate]


def fit_extra_trees(matrix: Matrix, target: Vector, seed: int) -> Surrogate:
    """Fit extremely randomised trees (Geurts et al., 2006): no tuning, one thread, reproducible from the seed."""
    trees = ExtraTreesRegressor(TREES, min_samples_leaf=SMALLEST_LEAF, n_jobs=1, random_state=seed)
    model: Surrogate = trees.fit(matrix, target)
    return model


@dataclass(frozen=True)
class HeldOut:
    """Errors on held-out rows, as they are [rows] and with each unit permuted [units, rows].

    `grid` is the mean prediction, over all fold models, of further rows that belong to no fold.
    """

    target: Vector
    residual: Vector
    squared_error: Vector
    permuted_squared_error: NDArray[np.float64]
    rows_of_unit: tuple[NDArray[np.bool_], ...]
    grid: Vector

    def r2(self) -> float:
        """Return 1 − squared error / squared distance from the mean."""
        return float(1 - self.squared_error.sum() / ((self.target - self.target.mean()) ** 2).sum())

    def importance(self) -> Vector:
        """Return per unit the rise of the root mean squared error over its rows [units], in units of the target."""
        rises = []
        for permuted, rows in zip(self.permuted_squared_error, self.rows_of_unit, strict=True):
            if rows.any():
                rises.append(np.sqrt(permuted[rows].mean()) - np.sqrt(self.squared_error[rows].mean()))
            else:  # a bootstrap study can lack every row where an option applies
                rises.append(np.nan)
        return np.array(rises)


def grouped_folds(groups: Indices, folds: int, seed: int) -> list[tuple[Indices, Indices]]:
    """Return (training rows, held-out rows) per fold; rows of one group, such as replicates, are never in both."""
    splitter = GroupKFold(folds, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros((len(groups), 1)), groups=groups))


def held_out(
    matrix: Matrix,
    target: Vector,
    groups: Indices,
    units: Sequence[Unit],
    *,
    folds: int,
    repeats: int,
    permutations: int,
    random: np.random.Generator,
    grid: Matrix | None = None,
    fit: Fit = fit_extra_trees,
) -> HeldOut:
    """Cross-validate by group, `repeats` times with new folds, and permute each unit within each held-out fold.

    `grid` [any, columns] holds further rows to predict with every fold model.

    Importance is measured on held-out rows only: on training rows a useless property looks useful (see scikit-learn's
    guide to permutation importance).
    """
    further = np.zeros((0, matrix.shape[1]), dtype=np.float32) if grid is None else grid
    further_sum = np.zeros(len(further))
    residual, error = np.zeros(len(target)), np.zeros(len(target))
    permuted_error = np.zeros((len(units), len(target)))
    for _ in range(repeats):
        for training, testing in grouped_folds(groups, folds, _seed(random)):
            model = fit(matrix[training], target[training], _seed(random))
            changed = permuted_copies(
                matrix[testing], [unit.rows[testing] for unit in units], units, permutations, random
            )
            asked = np.concatenate([matrix[testing], changed.reshape(-1, matrix.shape[1]), further])
            predicted = model.predict(asked)
            own, permuted, of_grid = np.split(predicted, [len(testing), len(asked) - len(further)])
            residual[testing] += target[testing] - own
            error[testing] += (target[testing] - own) ** 2
            permuted = permuted.reshape(len(units), permutations, len(testing))
            permuted_error[:, testing] += ((target[testing] - permuted) ** 2).mean(axis=1)
            further_sum += of_grid
    rows = tuple(unit.rows for unit in units)
    return HeldOut(
        target, residual / repeats, error / repeats, permuted_error / repeats, rows, further_sum / (repeats * folds)
    )


def permuted_copies(
    matrix: Matrix,
    rows_of_unit: Sequence[NDArray[np.bool_]],
    units: Sequence[Unit],
    permutations: int,
    random: np.random.Generator,
) -> NDArray[np.float32]:
    """Return [units · permutations, rows, columns]: copies in which a unit's columns are permuted among its rows."""
    copies = np.repeat(matrix[None], len(units) * permutations, axis=0)
    for position, (unit, takes_part) in enumerate(zip(units, rows_of_unit, strict=True)):
        rows = np.flatnonzero(takes_part)
        for copy in copies[position * permutations : (position + 1) * permutations]:
            copy[np.ix_(rows, unit.columns)] = matrix[np.ix_(random.permutation(rows), unit.columns)]
    return copies


def _seed(random: np.random.Generator) -> int:
    return int(random.integers(2**31))
