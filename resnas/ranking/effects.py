"""Direction and size of each property's effect: partial dependence, corrected by held-out residuals.

The partial dependence (Friedman, 2001) of a surrogate alone is shrunk towards 0, most of all in small studies. So the
mean held-out residual of the rows that have a level is added to its partial dependence: the cross-fitted, augmented
estimate of a level's mean (Robins et al., 1994; Chernozhukov et al., 2018) with the share of the level as its
propensity. That holds where properties are drawn independently, as random trials are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from resnas.ranking.columns import DOES_NOT_APPLY, Encoded, Property
from resnas.ranking.design import Design, Indices, Part, Vector
from resnas.ranking.ridge import HeldOut

NO_DIRECTION = "no clear direction"
BINS = 5
"""A number with more values than this is compared by fifths of its rows."""
FEWEST_ROWS = 3
"""Levels of a text with fewer rows are not compared, where at least two others have more."""


@dataclass(frozen=True)
class Levels:
    """The levels of one property to compare.

    Attributes:
        names: in order.
        of_row: position of each row's level, [rows]; −1 where it has none of them.
        rows: the rows over which effects are averaged, [rows] of booleans.
        part: of the property's unit in the design.
    """

    names: tuple[str, ...]
    of_row: Indices
    rows: np.typing.NDArray[np.bool_]
    part: int


def levels_of(position: int, encoded: Encoded, series: Sequence[object]) -> Levels:
    """Return fifths (or the values, if at most five) of a number, and every level of anything else.

    A text that is no option of another property has `does not apply` as a further level.

    Args:
        position: of the property.
        encoded: all properties.
        series: its values as given, one per row.
    """
    one = encoded.properties[position]
    is_option = any(position in options for options in encoded.options)
    part = next(number for number, unit in enumerate(encoded.units) if position in unit.members)
    rows = encoded.units[part].rows & one.applies if is_option else encoded.units[part].rows
    names, of_row = _bins(one, series) if one.kind == "numeric" else _named(one, is_option)
    return Levels(names, of_row, rows, part)


def _bins(one: Property, series: Sequence[object]) -> tuple[tuple[str, ...], Indices]:
    numbers = np.array([float(str(value)) for value, applies in zip(series, one.applies, strict=True) if applies])
    distinct = np.unique(numbers)
    if len(distinct) <= BINS:
        code = np.searchsorted(distinct, numbers)
        names = [f"{value:g}" for value in distinct]
    else:
        inner = np.quantile(numbers, np.arange(1, BINS) / BINS)
        found = np.searchsorted(np.unique(inner), numbers, side="right")
        code = np.searchsorted(np.unique(found), found)
        edges = [numbers[code == bin] for bin in range(code.max() + 1)]
        names = [_range(f"{bin.min():.3g}", f"{bin.max():.3g}") for bin in edges]
    of_row = np.full(len(one.applies), -1, dtype=np.intp)
    of_row[one.applies] = code
    return tuple(names), of_row


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _named(one: Property, is_option: bool) -> tuple[tuple[str, ...], Indices]:
    names, of_row = list(one.levels), one.level_of_row.copy()
    if one.kind == "categorical" and not is_option and not one.applies.all():
        of_row[~one.applies] = len(names)
        names.append(DOES_NOT_APPLY)
    sizes = np.bincount(of_row[of_row >= 0], minlength=len(names))
    frequent = np.flatnonzero(sizes >= FEWEST_ROWS)
    if one.kind == "categorical" and len(frequent) >= 2:
        kept = np.full(len(names) + 1, -1)  # the last one is for rows without a level
        kept[frequent] = np.arange(len(frequent))
        names, of_row = [names[level] for level in frequent], kept[of_row]
    return tuple(names), of_row


def level_means(design: Design, levels: Levels, result: HeldOut, rows: Indices | None = None) -> Vector:
    """Return the corrected mean of the first target at each level; NaN where no row has it.

    Args:
        design: of the rows that `result` is about.
        levels: of all rows of the study.
        result: of the cross-validation.
        rows: which rows of the study those are, if not all.
    """
    chosen = np.arange(len(levels.of_row)) if rows is None else rows
    part: Part = design.parts[levels.part]
    over = np.flatnonzero(levels.rows[chosen])
    of_row = levels.of_row[chosen]
    means = np.full(len(levels.names), np.nan)
    if not len(over):  # a bootstrap study can lack every row where an option applies
        return means
    weights = design.weights(part, over, result.coefficients[:, :1])[:, :, 0]
    predicted = (result.target - result.residual)[over, 0]
    rest = (predicted - (design.lent(part, over) * weights).sum(axis=1)).mean()
    for level in range(len(levels.names)):
        having = np.flatnonzero(of_row == level)
        if len(having):
            lent = design.lent(part, having).mean(axis=0) @ weights.mean(axis=0)
            means[level] = rest + lent + result.residual[having, 0].mean()
    return means


def is_picked(one: Property, means: Vector) -> bool:
    """Whether the levels that are compared are chosen by their means: those of a text with more than two."""
    return one.kind != "numeric" and len(means) > 2


def contrast(one: Property, means: Vector) -> tuple[int, int]:
    """Return the two levels of the effect (second − first): lowest and highest value of a number, false and true, or
    the names with the lowest and the highest mean."""
    if one.kind == "categorical" and not np.isnan(means).all():
        return int(np.nanargmin(means)), int(np.nanargmax(means))
    return 0, len(means) - 1


def direction(one: Property, names: Sequence[str], pair: tuple[int, int], low: float, high: float, target: str) -> str:
    """Say which way the effect goes, or that its interval [low, high] holds zero."""
    if low <= 0 <= high:
        return NO_DIRECTION
    verb = "raises" if low > 0 else "lowers"
    if one.kind == "numeric":
        return f"higher {verb} {target}"
    if one.kind == "boolean":
        return f"true {verb} {target}"
    first, second = pair if low > 0 else pair[::-1]
    return f"lowest with {names[first]}, highest with {names[second]}"
