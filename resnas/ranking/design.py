"""The features of the linear surrogate: the basis of every property, and their products in pairs (an ANOVA model).

What a unit of properties contributes to a prediction is linear in the values that it lends: prediction = rest + lent ·
weights, with weights that depend on the other properties of the row. So partial dependence and the mean over all
permutations have closed forms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from resnas.ranking.columns import Encoded, Unit

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]
NO_FEATURE = -1


@dataclass(frozen=True)
class Part:
    """The part of a unit in the features.

    Attributes:
        own: features made of the unit alone.
        moved: basis columns of the unit.
        others: basis columns of all other properties.
        products: feature that is the product of moved[i] and others[j], [moved, others]; −1 where there is none.
        rest: features that the unit has no part in.
        rows: the rows that take part, [rows] of booleans.
    """

    own: Indices
    moved: Indices
    others: Indices
    products: Indices
    rest: Indices
    rows: NDArray[np.bool_]


@dataclass(frozen=True)
class Design:
    """Features [rows, features] and the parts of the units in them.

    Attributes:
        basis: basis of all properties, side by side [rows, basis columns].
        features: the basis, then the products times `interaction_weight`.
        factors: the two basis columns of each feature; the same one twice for a column of the basis itself.
        degree: of the polynomials that a number is.
        interaction_weight: 0 is an additive model; it scales the products, so that a ridge penalty shrinks them more.
        parts: one per unit.
    """

    basis: NDArray[np.float64]
    features: NDArray[np.float64]
    factors: Indices
    degree: int
    interaction_weight: float
    parts: tuple[Part, ...]

    def take(self, rows: Indices) -> Design:
        """Return the design of some rows, which may repeat."""
        parts = tuple(replace(part, rows=part.rows[rows]) for part in self.parts)
        return replace(self, basis=self.basis[rows], features=self.features[rows], parts=parts)

    def lent(self, part: Part, rows: Indices) -> NDArray[np.float64]:
        """Return what rows lend to others when the unit is moved, [rows, lent]."""
        return np.column_stack([self.features[np.ix_(rows, part.own)], self.basis[np.ix_(rows, part.moved)]])

    def weights(self, part: Part, rows: Indices, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights of what is lent in the predictions of rows, [rows, lent, targets].

        Args:
            part: of the unit.
            rows: whose predictions are meant.
            coefficients: of the features, [features, targets].
        """
        own = np.broadcast_to(coefficients[part.own], (len(rows), *coefficients[part.own].shape))
        if self.interaction_weight == 0:
            cross = np.zeros((len(rows), len(part.moved), coefficients.shape[1]))
        else:
            padded = np.concatenate([coefficients, np.zeros((1, coefficients.shape[1]))])  # for NO_FEATURE
            of_products = self.interaction_weight * padded[part.products]
            cross = np.einsum("rb,abt->rat", self.basis[np.ix_(rows, part.others)], of_products, optimize=True)
        return np.concatenate([own, cross], axis=1)


def make_design(encoded: Encoded, degree: int, interaction_weight: float) -> Design:
    """Lay out the features of all properties.

    Products are made between columns of different properties, but not between a property and its own options (which
    say the same), nor within a group of properties that cannot be told apart.
    """
    blocks = [one.basis(degree) for one in encoded.properties]
    owner = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
    basis = np.column_stack(blocks)
    singles = np.arange(basis.shape[1])
    pairs = np.array(_pairs(encoded, owner) if interaction_weight else [], dtype=np.intp).reshape(-1, 2)
    products = interaction_weight * basis[:, pairs[:, 0]] * basis[:, pairs[:, 1]]
    factors = np.concatenate([np.column_stack([singles, singles]), pairs])
    parts = tuple(_part(unit, owner, factors) for unit in encoded.units)
    return Design(basis, np.column_stack([basis, products]), factors, degree, interaction_weight, parts)


def _pairs(encoded: Encoded, owner: Indices) -> list[tuple[int, int]]:
    unit_of = {member: number for number, unit in enumerate(encoded.units) for member in unit.members}

    def related(one: int, other: int) -> bool:
        return unit_of[one] == unit_of[other] or other in encoded.options[one] or one in encoded.options[other]

    count = len(owner)
    return [(i, j) for i in range(count) for j in range(i + 1, count) if not related(int(owner[i]), int(owner[j]))]


def _part(unit: Unit, owner: Indices, factors: Indices) -> Part:
    is_moved = np.isin(owner, unit.moved)
    inside = is_moved[factors]
    moved, others = np.flatnonzero(is_moved), np.flatnonzero(~is_moved)
    products = np.full((len(moved), len(others)), NO_FEATURE, dtype=np.intp)
    for feature in np.flatnonzero(inside[:, 0] != inside[:, 1]):
        one, other = factors[feature] if inside[feature, 0] else factors[feature][::-1]
        products[np.searchsorted(moved, one), np.searchsorted(others, other)] = feature
    return Part(
        own=np.flatnonzero(inside.all(axis=1)),
        moved=moved,
        others=others,
        products=products,
        rest=np.flatnonzero(~inside.any(axis=1)),
        rows=unit.rows,
    )
