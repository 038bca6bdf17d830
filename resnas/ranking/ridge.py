"""The first surrogate: ridge regression on the ANOVA features, and what it is worth on architectures it never saw.

A ridge with a given penalty is linear in the target, so hundreds of shuffled targets are fitted in one go; the penalty
and the weight of the products are chosen by leave-one-out (scikit-learn's RidgeCV).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GroupKFold

from resnas.ranking.design import Design, Indices, Part, Vector

PENALTIES = np.logspace(-0.5, 4, 12)
MARGIN = 0.5
"""Over √rows: the share by which a richer design must lower the leave-one-out error to be taken. It is about the
standard error of that share where the residuals of both correlate by 0.97 (the one-standard-error rule, Breiman et
al., 1984)."""
Matrix = NDArray[np.float64]
Split = tuple[Indices, Indices]
"""Training rows and held-out rows."""


@dataclass(frozen=True)
class Choice:
    """The design (its number) and the penalty that predict each target best, [targets] each."""

    design: Indices
    penalty: Vector


@dataclass(frozen=True)
class HeldOut:
    """What models say of rows that they were not trained on.

    Attributes:
        target: [rows, targets].
        residual: target − prediction, mean over the repeats, [rows, targets].
        squared_error: mean over the repeats, [rows, targets].
        importance: per unit, for the targets that were asked for, [targets of the unit].
        unit_rmse: root mean squared error over the rows that take part in the unit, for the same targets.
        coefficients: mean over all models, [features, targets].
    """

    target: Matrix
    residual: Matrix
    squared_error: Matrix
    importance: tuple[Vector, ...]
    unit_rmse: tuple[Vector, ...]
    coefficients: Matrix

    def importances(self) -> Vector:
        """Return the importance of each unit for its first target, [units]."""
        return np.array([of_targets[0] for of_targets in self.importance])

    def relative_importances(self) -> Vector:
        """Return the same as a share of the root mean squared error, [units]: free of the size of the noise."""
        return self.importances() / self.unit_rmses()

    def unit_rmses(self) -> Vector:
        """Return the root mean squared error over the rows of each unit, for its first target, [units]."""
        return np.array([of_targets[0] for of_targets in self.unit_rmse])

    def r2(self) -> Vector:
        """Return 1 − squared error / squared distance from the mean, [targets]."""
        total = ((self.target - self.target.mean(axis=0)) ** 2).sum(axis=0)
        found: Vector = 1 - self.squared_error.sum(axis=0) / total
        return found


def make_splits(groups: Indices, folds: int, repeats: int, random: np.random.Generator) -> list[Split]:
    """Return the splits of repeated cross-validation; equal groups are never on both sides."""
    return [
        split
        for _ in range(repeats)
        for split in GroupKFold(folds, shuffle=True, random_state=int(random.integers(2**31))).split(
            np.zeros((len(groups), 1)), groups=groups
        )
    ]


def choose(designs: Sequence[Design], targets: Matrix) -> Choice:
    """Choose for each of the targets [rows, targets] by leave-one-out, from designs that grow richer; a richer one must
    be better by a margin, so that its luck does not decide what is important."""
    scores, penalties = [], []
    for design in designs:
        model = RidgeCV(PENALTIES, alpha_per_target=True).fit(design.features, targets)
        scores.append(np.atleast_1d(model.best_score_))
        penalties.append(np.atleast_1d(model.alpha_))
    errors = -np.stack(scores)
    errors *= (1 + MARGIN / np.sqrt(len(targets))) ** np.arange(len(designs))[:, None]
    best = np.argmin(errors, axis=0)
    return Choice(best, np.stack(penalties)[best, np.arange(len(best))])


def chosen(designs: Sequence[Design], target: Vector) -> tuple[Design, float]:
    """Return the design and the penalty that predict one target best by leave-one-out."""
    choice = choose(designs, target[:, None])
    return designs[int(choice.design[0])], float(choice.penalty[0])


def held_out(
    design: Design,
    targets: Matrix,
    penalty: float,
    splits: Sequence[Split],
    parts: Sequence[Part] = (),
    targets_of_part: Sequence[slice] | None = None,
) -> HeldOut:
    """Cross-validate, and measure the permutation importance of units on the held-out rows.

    Importance is the rise of the root mean squared error when a unit's values are exchanged among the held-out rows
    that take part: the mean over every row's values, which is what infinitely many permutations would give. On training
    rows a useless property would look useful (see scikit-learn's guide to permutation importance).

    Args:
        design: the features.
        targets: [rows, targets].
        penalty: of the ridge.
        splits: of the cross-validation.
        parts: of the units whose importance is asked for.
        targets_of_part: for which targets; all by default.
    """
    columns = targets_of_part or [slice(None)] * len(parts)
    residual, error = np.zeros_like(targets), np.zeros_like(targets)
    permuted = [np.zeros_like(targets[:, column]) for column in columns]
    times = np.zeros(len(targets))
    coefficients = np.zeros((design.features.shape[1], targets.shape[1]))
    for training, testing in splits:
        model = Ridge(penalty).fit(design.features[training], targets[training])
        of_model = model.coef_.reshape(targets.shape[1], -1).T
        missed = targets[testing] - design.features[testing] @ of_model - model.intercept_
        residual[testing] += missed
        error[testing] += missed**2
        times[testing] += 1
        coefficients += of_model / len(splits)
        for part, column, sums in zip(parts, columns, permuted, strict=True):
            rows = part.rows[testing]
            sums[testing[rows]] += permuted_error(
                design, part, testing[rows], missed[rows][:, column], of_model[:, column]
            )
    residual, error = residual / times[:, None], error / times[:, None]
    unit_rmse = tuple(_rmse(error[part.rows][:, column]) for part, column in zip(parts, columns, strict=True))
    importance = tuple(
        _rmse(sums[part.rows] / times[part.rows, None]) - before
        for part, sums, before in zip(parts, permuted, unit_rmse, strict=True)
    )
    return HeldOut(targets, residual, error, importance, unit_rmse, coefficients)


def permuted_error(
    design: Design, part: Part, rows: Indices, residual: Matrix, coefficients: Matrix
) -> NDArray[np.float64]:
    """Return the mean squared error of each row over the unit's values of all `rows`, [rows, targets].

    With r the residual, d what row j lends and w the weights of row i: mean over j of (r_i + (d_i − d_j) · w_i)².
    """
    if not len(rows):
        return np.zeros_like(residual)
    lent, weights = design.lent(part, rows), design.weights(part, rows, coefficients)
    without = residual + np.einsum("rl,rlt->rt", lent, weights)
    first = np.einsum("l,rlt->rt", lent.mean(axis=0), weights)
    second = np.einsum("rlt,rlt->rt", weights, np.einsum("kl,rlt->rkt", lent.T @ lent / len(rows), weights))
    error: Matrix = without**2 - 2 * without * first + second
    return error


def _rmse(squared_error: Matrix) -> Vector:
    """Return the root mean squared error, [targets]; NaN where no row takes part."""
    if not len(squared_error):
        return np.full(squared_error.shape[1], np.nan)
    root: Vector = np.sqrt(squared_error.mean(axis=0))
    return root
