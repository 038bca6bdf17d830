"""From properties to numbers: the matrix that the surrogate sees, and which of its columns move together.

- numeric → its rank, so nothing depends on a monotone transform such as log; boolean → 0/1; text → one-hot. Trees see
  these as they are (`matrix`), a linear surrogate sees a small orthogonal basis of them (`basis`).
- A value that is missing "does not apply". Its row stays: the value becomes a sentinel (0: below every rank, or in the
  basis the mean of those that apply), and a further column says whether the property applies. No value is invented.
- A property is an *option* of another where that one decides whether it applies (`window_sources` of `family`). An
  option is judged only among the rows where it applies, and moves along when its parent is moved, so that no
  impossible architecture is scored.
- Properties with association ≥ 0.7 form a *unit*: they are moved together and share one verdict.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata

from resnas.errors import InputError

ASSOCIATION = 0.7
"""Association from which two properties count as one unit; |Spearman| for numbers."""
FEWEST_COMMON_ROWS = 8
"""Rows in which two properties must both apply before their association is judged."""

Kind = Literal["numeric", "boolean", "categorical"]
DOES_NOT_APPLY = "does not apply"


@dataclass(frozen=True)
class Property:
    """One property as numbers: `values` [rows, columns], and `levels` with `level_of_row` (−1: does not apply)."""

    name: str
    kind: Kind
    values: NDArray[np.float32]
    applies: NDArray[np.bool_]
    levels: tuple[str, ...]
    level_of_row: NDArray[np.intp]

    @cached_property
    def matrix(self) -> NDArray[np.float32]:
        """Return [rows, columns] with the flag column `applies` last where the property does not always apply."""
        return self.values if self.applies.all() else np.column_stack([self.values, self.applies]).astype(np.float32)

    def basis(self, degree: int) -> NDArray[np.float64]:
        """Return [rows, columns] of mean 0 whose variances add up to 1 where the property applies, 0 elsewhere.

        A number is a straight line over its ranks, with degree 2 a parabola as well (the first Legendre polynomials),
        anything else one column per level. Where the property does not always apply a last column, of variance 1, says
        so.
        """
        columns = self.values.astype(np.float64)
        if self.kind == "numeric":
            position = 2 * (columns[:, 0] - 0.5) / self.applies.sum() - 1
            columns = np.column_stack(
                [position, (3 * position**2 - 1) / 2][: max(1, min(degree, len(self.levels) - 1))]
            )
        parts = [_standardised(columns, self.applies, each=self.kind == "numeric")]
        if not self.applies.all():
            parts.append(_standardised(self.applies[:, None].astype(np.float64), np.ones_like(self.applies)))
        return np.column_stack(parts)


@dataclass(frozen=True)
class Unit:
    """Properties that are moved together: members (positions; the one that applies to most rows first, which names
    them), all that is moved, matrix columns, and the rows that take part."""

    members: tuple[int, ...]
    moved: tuple[int, ...]
    columns: NDArray[np.intp]
    rows: NDArray[np.bool_]


@dataclass(frozen=True)
class Encoded:
    """All properties that vary: the matrix [rows, columns], the units, and the options of each property."""

    properties: tuple[Property, ...]
    matrix: NDArray[np.float32]
    units: tuple[Unit, ...]
    options: tuple[tuple[int, ...], ...]


def encode_property(series: pandas.Series) -> Property:
    """Turn one column of the table into numbers.

    Raises:
        InputError: a value is neither number, boolean nor text.
    """
    applies = series.notna().to_numpy(dtype=bool)
    given = series.to_numpy(dtype=object)[applies]
    kind = _kind(str(series.name), given)
    text = np.array([_text(value) for value in given], dtype=object)
    levels, codes = np.unique(text.astype(str), return_inverse=True)
    if kind == "numeric" and len(levels) == 1:
        kind = "categorical"  # only whether it applies can vary
    level_of_row = np.full(len(series), -1, dtype=np.intp)
    level_of_row[applies] = codes
    values = np.zeros((len(series), _width(kind, len(levels))), dtype=np.float32)
    if kind == "numeric":
        values[applies, 0] = rankdata(given.astype(float))
    elif kind == "boolean":
        values[applies, 0] = given.astype(bool)
    else:
        values[applies] = codes[:, None] == np.arange(len(levels))[: values.shape[1]]
    return Property(str(series.name), kind, values, applies, tuple(levels), level_of_row)


def _standardised(columns: NDArray[np.float64], applies: NDArray[np.bool_], each: bool = False) -> NDArray[np.float64]:
    """Centre columns over the rows that apply and scale them to a total variance of 1 (each to the same, if `each`)."""
    centred = columns - columns[applies].mean(axis=0)
    variance = centred[applies].var(axis=0)
    scale = np.sqrt(variance * len(variance)) if each else np.sqrt(variance.sum())
    scaled: NDArray[np.float64] = np.where(applies[:, None], centred / np.where(scale > 0, scale, 1), 0.0)
    return scaled


def _width(kind: Kind, levels: int) -> int:
    """Return the number of value columns; of two levels one says all."""
    return levels if kind == "categorical" and levels != 2 else 1


def _kind(name: str, given: NDArray[np.object_]) -> Kind:
    if all(isinstance(value, bool | np.bool_) for value in given):
        return "boolean"
    if all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in given):
        return "numeric"
    for value in given:
        if not isinstance(value, numbers.Real | str | np.bool_):
            raise InputError(f"property {name!r} holds {value!r}; a property is a number, true/false or a text")
    return "categorical"


def _text(value: object) -> str:
    """Write a value as YAML does."""
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def encode(properties: Sequence[Property]) -> tuple[Encoded, tuple[Property, ...]]:
    """Split off constant properties, and lay the others side by side with their units. Returns (encoded, constant)."""
    parents = [[_decides(other, one) for other in properties] for one in properties]
    varies = [_varies(one, any(of)) for one, of in zip(properties, parents, strict=True)]
    kept = tuple(one for one, keep in zip(properties, varies, strict=True) if keep)
    constant = tuple(one for one, keep in zip(properties, varies, strict=True) if not keep)
    rows = len(properties[0].applies) if properties else 0
    matrix = np.column_stack([one.matrix for one in kept]) if kept else np.zeros((rows, 0), dtype=np.float32)
    options = tuple(_options(position, kept) for position in range(len(kept)))
    return Encoded(kept, matrix, _units(kept, options), options), constant


def _varies(one: Property, is_option: bool) -> bool:
    return len(one.levels) > 1 or (bool(one.levels) and not is_option and not bool(one.applies.all()))


def _decides(parent: Property, child: Property) -> bool:
    """Whether the value of `parent` decides if `child` applies."""
    if parent is child or parent.kind == "numeric" or child.applies.all() or (child.applies & ~parent.applies).any():
        return False
    if not (parent.applies & ~child.applies).any():
        return False  # they apply to the same rows: neither is the parent
    applying, others = set(parent.level_of_row[child.applies]), set(parent.level_of_row[~child.applies])
    return not applying & others


def _options(position: int, properties: Sequence[Property]) -> tuple[int, ...]:
    """Return the positions of all options of a property, and of their options in turn."""
    found: list[int] = []
    waiting = [position]
    while waiting:
        parent = properties[waiting.pop()]
        new = [i for i, child in enumerate(properties) if i not in found and _decides(parent, child)]
        found += new
        waiting += new
    return tuple(sorted(found))


def _units(properties: Sequence[Property], options: Sequence[tuple[int, ...]]) -> tuple[Unit, ...]:
    if not properties:
        return ()
    close = [[association(one, other) >= ASSOCIATION for other in properties] for one in properties]
    count, label_of = connected_components(csr_array(np.array(close)), directed=False)
    ends = np.cumsum([one.matrix.shape[1] for one in properties])
    starts = np.concatenate([[0], ends[:-1]])
    is_option = {child for children in options for child in children}
    units = []
    for label in range(count):
        found = [int(i) for i in np.flatnonzero(label_of == label)]
        members = tuple(sorted(found, key=lambda i: -properties[i].applies.sum()))
        moved = sorted({*members, *(child for member in members for child in options[member])})
        columns = np.concatenate([np.arange(starts[i], ends[i]) for i in moved])
        takes_part = [properties[i].applies if i in is_option else np.ones_like(properties[i].applies) for i in members]
        units.append(Unit(members, tuple(moved), columns, np.any(takes_part, axis=0)))
    return tuple(units)


def association(one: Property, other: Property) -> float:
    """Return how well one property is known from the other, 0 to 1, over the rows where both apply.

    For two numbers it is |Spearman|; in general the multiple correlation of ranks and levels (adjusted for the number
    of columns), the larger of both ways, so that a function of a categorical property has association 1 with it.
    """
    both = one.applies & other.applies
    if both.sum() < FEWEST_COMMON_ROWS:
        return 0.0
    left, right = _centred(one, both), _centred(other, both)
    return float(np.sqrt(max(_explained(left, right), _explained(right, left))))


def _centred(one: Property, rows: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = one.values[rows].astype(np.float64)
    if one.kind == "numeric":
        values = rankdata(values, axis=0)
    centred: NDArray[np.float64] = values - values.mean(axis=0)
    return centred


def _explained(by: NDArray[np.float64], what: NDArray[np.float64]) -> float:
    """Return the largest R² of a column of `what` in a linear regression on `by`, adjusted for many columns."""
    total = (what**2).sum(axis=0)
    rank = int(np.linalg.matrix_rank(by)) if by.any() else 0
    if rank == 0 or not total.any() or len(by) < 2 * (rank + 1):
        return 0.0
    rest = ((what - by @ np.linalg.lstsq(by, what, rcond=None)[0]) ** 2).sum(axis=0)[total > 0] / total[total > 0]
    adjusted = 1 - rest * (len(by) - 2) / (len(by) - 1 - rank)
    return float(np.clip(adjusted.max(), 0, 1))
