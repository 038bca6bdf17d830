"""Everything that a ranking measures before any verdict, in order: the surrogate on architectures it never saw, chance,
a second surrogate and other checks, and the bootstrap over architectures with refits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, weightedtau

from resnas.ranking import inference
from resnas.ranking.columns import Encoded
from resnas.ranking.design import Design, Indices, Vector, make_design
from resnas.ranking.effects import Levels, contrast, is_picked, level_means
from resnas.ranking.interactions import MOST_UNITS, PairOfUnits, interactions
from resnas.ranking.nulls import null_importance, null_r2, orders
from resnas.ranking.result import Check
from resnas.ranking.ridge import HeldOut, Split, chosen, held_out, make_splits
from resnas.ranking.trees import second_opinion

Progress = Callable[[str, float], None]

# One random stream per step, so that more of one step changes no other.
SPLITS, SHUFFLES, BOOTSTRAP, TREES, HALVES, R2_INTERVAL, RANDOM_ONLY = range(7)
DESIGNS = ((1, 0.0), (2, 0.0), (2, 0.5))
"""Degree of a number, and weight of the products: straight lines, curves, curves with products of pairs. Leave-one-out
chooses; what a study does not need would only add noise to the importances."""
HALVINGS = 3
"""Random halves of the architectures over which R² is averaged."""
LEADERS = 3
"""A property is a leader of a bootstrap study if it is among so many most important ones."""
FEWEST_RANDOM = 20
"""Architectures drawn at random from which on they are ranked by themselves too, as a check."""


class Effort(NamedTuple):
    """How much is computed: folds, repeats of the folds, bootstrap studies, shuffled targets."""

    folds: int
    repeats: int
    bootstraps: int
    shuffles: int


@dataclass(frozen=True)
class Study:
    """What is ranked: one row per architecture.

    Attributes:
        encoded: the properties.
        levels: of each property.
        designs: that the surrogate is chosen from, the richest last.
        target: mean over seeds [rows], outliers drawn in.
        at_random: the rows that were drawn at random, [rows] of booleans.
        seed: of everything random.
    """

    encoded: Encoded
    levels: tuple[Levels, ...]
    designs: tuple[Design, ...]
    target: Vector
    at_random: NDArray[np.bool_]
    seed: int

    def random(self, step: int, number: int = 0) -> np.random.Generator:
        """Return the random stream of one step."""
        return np.random.default_rng([self.seed, step, number])

    def splits(self, folds: int, repeats: int) -> list[Split]:
        """Return the splits of the cross-validation."""
        return make_splits(np.arange(len(self.target)), folds, repeats, self.random(SPLITS))


def make_designs(encoded: Encoded) -> tuple[Design, ...]:
    """Return the designs that the surrogate is chosen from, growing richer."""
    return tuple(make_design(encoded, degree, weight) for degree, weight in DESIGNS)


@dataclass(frozen=True)
class Quality:
    """How well the surrogate predicts: what the gate looks at.

    Attributes:
        design: the one chosen.
        penalty: the one chosen.
        result: of the cross-validation.
        r2_bounds: 90 % interval of R².
        p_value: share of shuffled targets that are predicted as well.
    """

    design: Design
    penalty: float
    result: HeldOut
    r2_bounds: tuple[float, float]
    p_value: float

    @property
    def r2(self) -> float:
        """Held-out R²."""
        return float(self.result.r2()[0])


@dataclass(frozen=True)
class Evidence:
    """What is measured of the properties; draws are [bootstraps, units or properties]."""

    null: NDArray[np.float64]
    second_importance: Vector
    checks: tuple[Check, ...]
    interactions: list[PairOfUnits]
    importance_draws: NDArray[np.float64]
    means: tuple[Vector, ...]
    mean_draws: tuple[NDArray[np.float64], ...]
    pairs: tuple[tuple[int, int], ...]
    effect_draws: NDArray[np.float64]

    def leader_share(self) -> Vector:
        """Return for each unit the share of bootstrap studies in which it is a leader."""
        places = rankdata(-np.nan_to_num(self.importance_draws, nan=-np.inf), axis=1)
        share: Vector = (places <= LEADERS).mean(axis=0)
        return share


def assess(study: Study, effort: Effort, say: Progress) -> Quality:
    """Cross-validate the surrogate, on the target and on shuffled ones."""
    say("surrogate", 0.0)
    splits = study.splits(effort.folds, effort.repeats)
    design, penalty = chosen(study.designs, study.target)
    result = held_out(design, study.target[:, None], penalty, splits, design.parts)
    bounds = inference.r2_interval(result, study.random(R2_INTERVAL))
    say("shuffled targets", 0.05)
    shuffled = orders(len(study.target), effort.shuffles, study.random(SHUFFLES))
    null = null_r2(study.designs, study.target, shuffled, splits)
    return Quality(design, penalty, result, bounds, inference.p_value_above(float(result.r2()[0]), null))


def gather(study: Study, quality: Quality, effort: Effort, say: Progress) -> Evidence:
    """Measure the properties, and tell `say` the step and the share of the work that is done."""
    say("properties that do nothing", 0.2)
    splits = study.splits(effort.folds, effort.repeats)
    shuffled = orders(len(study.target), effort.shuffles, study.random(SHUFFLES, 1))
    null = null_importance(study.designs, study.target, shuffled, splits)
    importance = quality.result.importances()
    say("second surrogate", 0.4)
    second_r2, second_importance = second_opinion(study.encoded, study.target, splits, study.random(TREES))
    checks = [Check("extremely randomised trees", second_r2, agreement(importance, second_importance))]
    checks += _checks(study, importance, splits, effort)
    leading = [int(unit) for unit in np.argsort(-importance)[:MOST_UNITS]]
    with_products, penalty = study.designs[-1], chosen(study.designs[-1:], study.target)[1]
    found = interactions(with_products, study.target, penalty, leading, shuffled)
    properties = study.encoded.properties
    means = tuple(level_means(quality.design, levels, quality.result) for levels in study.levels)
    pairs = tuple(contrast(one, of) for one, of in zip(properties, means, strict=True))
    draws = []
    for number in range(effort.bootstraps):
        say("bootstrap", 0.5 + 0.5 * number / effort.bootstraps)
        draws.append(_bootstrapped(study, quality, effort.folds, study.random(BOOTSTRAP, number)))
    say("bootstrap", 1.0)
    mean_draws = tuple(np.array([drawn[position] for _, drawn in draws]) for position in range(len(properties)))
    return Evidence(
        null=null,
        second_importance=second_importance,
        checks=tuple(checks),
        interactions=found,
        importance_draws=np.array([importance for importance, _ in draws]),
        means=means,
        mean_draws=mean_draws,
        pairs=pairs,
        effect_draws=np.array([_effects(study, pairs, drawn) for _, drawn in draws]),
    )


def _effects(study: Study, pairs: Sequence[tuple[int, int]], means: Sequence[Vector]) -> list[float]:
    """Return the differences of the compared levels; of a text, of those that are extreme in this very study."""
    found = []
    for one, pair, of in zip(study.encoded.properties, pairs, means, strict=True):
        picked = is_picked(one, of) and not np.isnan(of).all()
        found.append(float(np.nanmax(of) - np.nanmin(of) if picked else of[pair[1]] - of[pair[0]]))
    return found


def _bootstrapped(
    study: Study, quality: Quality, folds: int, random: np.random.Generator
) -> tuple[Vector, list[Vector]]:
    """Return importances and level means of one study drawn anew; copies of an architecture share a fold."""
    rows = inference.bootstrap_rows(len(study.target), folds, random)
    design = quality.design.take(rows)
    splits = make_splits(rows, folds, 1, random)
    result = held_out(design, study.target[rows, None], quality.penalty, splits, design.parts)
    return result.importances(), [level_means(design, levels, result, rows) for levels in study.levels]


def _checks(study: Study, importance: Vector, splits: Sequence[Split], effort: Effort) -> list[Check]:
    """Rank by the ranks of the target, and from the architectures drawn at random alone."""
    every = np.arange(len(study.target))
    ranks = rankdata(study.target)
    checks = [_check("ranks of the target", study, ranks, every, splits, importance)]
    at_random = np.flatnonzero(study.at_random)
    if FEWEST_RANDOM <= len(at_random) < len(every):
        splits = make_splits(at_random, effort.folds, effort.repeats, study.random(RANDOM_ONLY))
        checks.append(
            _check("random architectures only", study, study.target[at_random], at_random, splits, importance)
        )
    return checks


def _check(
    name: str, study: Study, target: Vector, rows: Indices, splits: Sequence[Split], importance: Vector
) -> Check:
    designs = [design.take(rows) for design in study.designs]
    design, penalty = chosen(designs, target)
    result = held_out(design, target[:, None], penalty, splits, design.parts)
    return Check(name, float(result.r2()[0]), agreement(importance, result.importances()))


def agreement(one: Vector, other: Vector) -> float | None:
    """Return how alike two lists of importances order the units, −1 to 1: Kendall's τ, hyperbolically weighted so that
    the leaders count most (Vigna, 2015); None with fewer than two."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < 2:
        return None
    found = float(weightedtau(one[known], other[known]).statistic)
    return found if np.isfinite(found) else None


def r2_of_half(study: Study, folds: int) -> float:
    """Return the held-out R² with half of the architectures: the second point of the learning curve."""
    count = len(study.target)
    found = []
    for number in range(HALVINGS):
        random = study.random(HALVES, number)
        rows = random.choice(count, max(folds, count // 2), replace=False)
        if np.ptp(study.target[rows]) > 0:
            designs = [design.take(rows) for design in study.designs]
            design, penalty = chosen(designs, study.target[rows])
            splits = make_splits(rows, folds, 1, random)
            found.append(float(held_out(design, study.target[rows, None], penalty, splits).r2()[0]))
    return float(np.mean(found)) if found else 0.0
