"""What chance alone would give: targets shuffled as a whole, and shuffled in all but what the other properties explain.

A property that does nothing looks more important where the surrogate follows strong other properties closely than it
does on a target of pure noise. So each unit has a null of its own (Freedman & Lane, 1983): the surrogate's fit without
the unit, plus its residuals in another order. The fit follows what the others do, the residuals know nothing of the
unit. Measured on planted studies, shuffling the whole target instead calls a useless property supported in 40 to 60 %
of the studies with two real effects. Importance is compared as a share of the error, which does not depend on the
size of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from resnas.ranking.design import Design, Indices, Vector
from resnas.ranking.ridge import Split, choose, chosen, held_out


def orders(rows: int, shuffles: int, random: np.random.Generator) -> list[Indices]:
    """Return so many random orders of the rows."""
    return [random.permutation(rows) for _ in range(shuffles)]


def within(rows: NDArray[np.bool_], order: Indices) -> Indices:
    """Return an order that exchanges rows among `rows` and among the others, but not between the two."""
    found = np.empty_like(order)
    for group in (rows, ~rows):
        found[group] = order[group[order]]
    return found


def null_r2(designs: Sequence[Design], target: Vector, shuffled: Sequence[Indices], splits: Sequence[Split]) -> Vector:
    """Return the held-out R² of each shuffled target; design and penalty are chosen for each anew."""
    targets = np.stack([target[order] for order in shuffled], axis=1)
    found = np.full(targets.shape[1], np.nan)
    for design, penalty, same in _alike(designs, targets):
        found[same] = held_out(design, targets[:, same], penalty, splits).r2()
    return found


def null_importance(
    designs: Sequence[Design],
    target: Vector,
    shuffled: Sequence[Indices],
    splits: Sequence[Split],
) -> NDArray[np.float64]:
    """Return the relative importance that each unit would have if it did nothing, [shuffles, units].

    Design and penalty are chosen anew for each null target, as they were for the target itself.
    """
    design, penalty = chosen(designs, target)
    blocks = [
        without(design, part.rest, target, penalty, [within(part.rows, order) for order in shuffled])
        for part in design.parts
    ]
    targets = np.concatenate(blocks, axis=1)
    unit = np.repeat(np.arange(len(blocks)), len(shuffled))
    found = np.full(targets.shape[1], np.nan)
    for other, its_penalty, same in _alike(designs, targets):
        ends = np.searchsorted(unit[same], np.arange(len(blocks) + 1))
        columns = [slice(start, end) for start, end in pairwise(ends)]
        result = held_out(other, targets[:, same], its_penalty, splits, other.parts, columns)
        found[same] = np.concatenate(result.importance) / np.concatenate(result.unit_rmse)
    return found.reshape(len(blocks), len(shuffled)).T


def _alike(designs: Sequence[Design], targets: NDArray[np.float64]) -> Iterator[tuple[Design, float, Indices]]:
    """Choose design and penalty for each of the targets [rows, targets], and yield those that share both together."""
    choice = choose(designs, targets)
    for number, penalty in sorted({*zip(choice.design.tolist(), choice.penalty.tolist(), strict=True)}):
        yield designs[number], penalty, np.flatnonzero((choice.design == number) & (choice.penalty == penalty))


def without(
    design: Design, features: Indices, target: Vector, penalty: float, shuffled: Sequence[Indices]
) -> NDArray[np.float64]:
    """Return targets in which only `features` have a part, [rows, shuffles].

    Residuals are centred and scaled by 1/(1 − leverage), which makes them those of leave-one-out: what is seen of noise
    by a model that was not fitted to it.
    """
    fitted, leverage = ridge_fit(design.features[:, features], target, penalty)
    residual = (target - fitted) / (1 - leverage)
    residual -= residual.mean()
    return np.stack([fitted + residual[order] for order in shuffled], axis=1)


def ridge_fit(features: NDArray[np.float64], target: Vector, penalty: float) -> tuple[Vector, Vector]:
    """Return the fitted values of a ridge with free intercept, and the leverage of each row (the diagonal of its hat
    matrix)."""
    left, singular, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    shrunk = singular**2 / (singular**2 + penalty)
    fitted = left @ (shrunk * (left.T @ (target - target.mean()))) + target.mean()
    leverage = (left**2 * shrunk).sum(axis=1) + 1 / len(target)
    return fitted, leverage
