"""Direction and size of each property's effect: partial dependence, corrected by held-out residuals.

Partial dependence (Friedman, 2001) of trees alone is shrunk towards 0, most of all in small studies. So the mean
held-out residual of the rows that have a level is added to its partial dependence: the cross-fitted, augmented estimate
of a level's mean (Robins et al., 1994; Chernozhukov et al., 2018) with the share of the level as its propensity. That
holds where properties are drawn independently, as random trials are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resnas.ranking.columns import DOES_NOT_APPLY, Encoded, Property, Unit
from resnas.ranking.surrogate import HeldOut, Indices, Matrix, Vector

MOST_ROWS = 40
"""Rows over which a partial dependence is averaged; sampled where there are more."""
MOST_DONORS = 6
"""Rows that lend their values to one level; sampled where there are more."""
NO_DIRECTION = "no clear direction"
LOWEST, HIGHEST = "lowest with ", ", highest with "
"""How a direction names two levels of a text."""
TAIL = 0.1
"""Share of rows at either end of a number that are compared."""
FEWEST_ROWS = 3
"""Levels of a text with fewer rows are not compared, where at least two others have more."""


@dataclass(frozen=True)
class Levels:
    """The levels of one property to compare: names, and the rows that have each."""

    names: tuple[str, ...]
    donors: tuple[Indices, ...]


def levels_of(one: Property, is_option: bool) -> Levels:
    """Return low and high (tenths, by rank) of a number, false and true of a boolean, every level of a text.

    A text that is no option of another property has `does not apply` as a further level.
    """
    if one.kind == "numeric":
        ranks = one.values[:, 0]
        given = ranks[one.applies]
        low, high = np.quantile(given, [TAIL, 1 - TAIL])
        if low == high:
            low, high = given.min(), given.max()
        tails = (one.applies & (ranks <= low), one.applies & (ranks >= high))
        return Levels(("low", "high"), tuple(np.flatnonzero(tail) for tail in tails))
    names = list(one.levels)
    donors = [np.flatnonzero(one.level_of_row == code) for code in range(len(names))]
    if one.kind == "categorical" and not is_option and not one.applies.all():
        names.append(DOES_NOT_APPLY)
        donors.append(np.flatnonzero(~one.applies))
    frequent = [position for position, rows in enumerate(donors) if len(rows) >= FEWEST_ROWS]
    if one.kind == "categorical" and len(frequent) >= 2:
        names, donors = [names[position] for position in frequent], [donors[position] for position in frequent]
    return Levels(tuple(names), tuple(donors))


@dataclass(frozen=True)
class EffectGrid:
    """All rows to predict for all properties, laid out once and used for every refit: property → level → rows."""

    levels: tuple[Levels, ...]
    matrix: Matrix
    ends: tuple[Indices, ...]
    table_rows: int

    def level_means(self, result: HeldOut, rows: Indices | None = None) -> list[Vector]:
        """Return the corrected mean of each level, per property; NaN where no row of the study has the level.

        `rows` are those of the table that the study behind `result` was drawn from; all of them if None.
        """
        chosen = np.arange(self.table_rows) if rows is None else rows
        sums = np.concatenate([[0.0], np.cumsum(result.grid)])
        means = []
        for levels, ends in zip(self.levels, self.ends, strict=True):
            corrections = [self._mean_residual(donors, result.residual, chosen) for donors in levels.donors]
            means.append(np.diff(sums[ends]) / np.diff(ends) + np.array(corrections))
        return means

    def _mean_residual(self, donors: Indices, residual: Vector, rows: Indices) -> float:
        has_level = np.zeros(self.table_rows, dtype=bool)
        has_level[donors] = True
        found = residual[has_level[rows]]
        return float(found.mean()) if len(found) else np.nan


def effect_grid(encoded: Encoded, random: np.random.Generator) -> EffectGrid:
    """Lay out the grid: each level's values, with those of its unit, put into a sample of the rows that take part."""
    unit_of = {member: unit for unit in encoded.units for member in unit.members}
    is_option = {child for children in encoded.options for child in children}
    levels = tuple(levels_of(one, position in is_option) for position, one in enumerate(encoded.properties))
    blocks: list[Matrix] = []
    ends: list[Indices] = []
    reached = 0
    for position, one in enumerate(levels):
        unit = unit_of[position]
        takes_part = unit.rows & encoded.properties[position].applies if position in is_option else unit.rows
        rows = _sample(np.flatnonzero(takes_part), MOST_ROWS, random)
        marks = [reached]
        for donors in one.donors:
            blocks.append(_lend(encoded.matrix, rows, _sample(donors, MOST_DONORS, random), unit))
            reached += len(blocks[-1])
            marks.append(reached)
        ends.append(np.array(marks))
    return EffectGrid(levels, np.concatenate(blocks), tuple(ends), len(encoded.matrix))


def _sample(rows: Indices, most: int, random: np.random.Generator) -> Indices:
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def _lend(matrix: Matrix, rows: Indices, donors: Indices, unit: Unit) -> Matrix:
    """Return [rows · donors, columns]: every row with the unit's columns of every donor."""
    lent = np.repeat(matrix[rows], len(donors), axis=0)
    lent[:, unit.columns] = np.tile(matrix[np.ix_(donors, unit.columns)], (len(rows), 1))
    return lent


def contrast(one: Property, means: Vector) -> tuple[int, int]:
    """Return the two levels of the effect (second − first): low and high, false and true, or lowest and highest."""
    if one.kind == "numeric":
        return 0, 1
    if one.kind == "boolean" and len(one.levels) == 2:
        return one.levels.index("false"), one.levels.index("true")
    return int(np.argmin(means)), int(np.argmax(means))


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
    return f"{LOWEST}{names[first]}{HIGHEST}{names[second]}"


def compared_levels(direction: str) -> tuple[str, str] | None:
    """Return the names of the lowest and the highest level that a direction in words names; None where it names
    none."""
    lowest, found, highest = direction.removeprefix(LOWEST).partition(HIGHEST)
    return (lowest, highest) if found and direction.startswith(LOWEST) else None


def effect_of(pair: tuple[int, int], means: NDArray[np.float64]) -> float:
    """Return the difference of the two compared levels."""
    return float(means[pair[1]] - means[pair[0]])
