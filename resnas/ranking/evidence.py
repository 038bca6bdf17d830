"""Everything that a ranking measures before any verdict: held-out errors, shuffled targets, bootstrap with refit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resnas.ranking import inference
from resnas.ranking.columns import Encoded
from resnas.ranking.effects import EffectGrid, contrast, effect_grid, effect_of
from resnas.ranking.surrogate import HeldOut, Indices, Matrix, Vector, held_out

Progress = Callable[[str, float], None]

# One random stream per step, so that more of one step changes no other.
SURROGATE, SHUFFLES, BOOTSTRAP, GRID, HALVES, R2_INTERVAL = range(6)
PERMUTATIONS = 3
"""Permutations of each unit in each held-out fold."""
HALVINGS = 3
"""Random halves of the architectures over which R² is averaged."""


class Effort(NamedTuple):
    """How much is computed: folds, repeats of the folds, bootstrap studies, shuffled targets."""

    folds: int
    repeats: int
    bootstraps: int
    shuffles: int


@dataclass(frozen=True)
class Study:
    """What is ranked: the encoded properties, the target [rows], the architecture of each row, and the seed."""

    encoded: Encoded
    target: Vector
    groups: Indices
    seed: int

    def random(self, step: int, number: int = 0) -> np.random.Generator:
        """Return the random stream of one step."""
        return np.random.default_rng([self.seed, step, number])


@dataclass(frozen=True)
class Evidence:
    """All that was measured: importances per unit, effects per property, draws [bootstraps, units or properties]."""

    result: HeldOut
    r2_bounds: tuple[float, float]
    null_r2: Vector
    null_importance: NDArray[np.float64]
    importance_draws: NDArray[np.float64]
    grid: EffectGrid
    pairs: tuple[tuple[int, int], ...]
    effects: Vector
    effect_draws: NDArray[np.float64]

    def r2_p_value(self) -> float:
        """Return the share of shuffled targets that are predicted as well."""
        return inference.p_value_above(self.result.r2(), self.null_r2)


def gather(study: Study, effort: Effort, progress: Progress | None) -> Evidence:
    """Measure everything, and tell `progress` the step and the share of the work that is done."""
    say = progress or _silent
    work = effort.repeats + effort.shuffles + effort.bootstraps
    say("surrogate", 0.0)
    grid = effect_grid(study.encoded, study.random(GRID))
    result = _cross_validate(study, effort.folds, effort.repeats, study.random(SURROGATE), grid=grid.matrix)
    means = grid.level_means(result)
    pairs = tuple(contrast(one, of) for one, of in zip(study.encoded.properties, means, strict=True))
    null = []
    for number in range(effort.shuffles):
        say("shuffled targets", (effort.repeats + number) / work)
        null.append(_shuffled(study, effort.folds, study.random(SHUFFLES, number)))
    draws = []
    for number in range(effort.bootstraps):
        say("bootstrap", (effort.repeats + effort.shuffles + number) / work)
        draws.append(_bootstrapped(study, effort.folds, grid, pairs, study.random(BOOTSTRAP, number)))
    say("bootstrap", 1.0)
    return Evidence(
        result=result,
        r2_bounds=inference.r2_interval(result, study.groups, study.random(R2_INTERVAL)),
        null_r2=np.array([one.r2() for one in null]),
        null_importance=np.array([one.importance() for one in null]),
        importance_draws=np.array([importance for importance, _ in draws]),
        grid=grid,
        pairs=pairs,
        effects=_effects(pairs, means),
        effect_draws=np.array([effects for _, effects in draws]),
    )


def _silent(step: str, share: float) -> None:
    """Report to nobody."""


def _cross_validate(
    study: Study,
    folds: int,
    repeats: int,
    random: np.random.Generator,
    rows: Indices | None = None,
    grid: Matrix | None = None,
) -> HeldOut:
    """Cross-validate on the study, or on some of its rows."""
    chosen = np.arange(len(study.target)) if rows is None else rows
    return held_out(
        study.encoded.matrix[chosen],
        study.target[chosen],
        study.groups[chosen],
        [replace(unit, rows=unit.rows[chosen]) for unit in study.encoded.units],
        folds=folds,
        repeats=repeats,
        permutations=PERMUTATIONS,
        random=random,
        grid=grid,
    )


def _shuffled(study: Study, folds: int, random: np.random.Generator) -> HeldOut:
    shuffled = inference.shuffle_by_group(study.target, study.groups, random)
    return _cross_validate(replace(study, target=shuffled), folds, 1, random)


def _bootstrapped(
    study: Study, folds: int, grid: EffectGrid, pairs: tuple[tuple[int, int], ...], random: np.random.Generator
) -> tuple[Vector, Vector]:
    """Return importances and effects of one study drawn anew."""
    rows = inference.bootstrap_rows(study.groups, folds, random)
    result = _cross_validate(study, folds, 1, random, rows, grid.matrix)
    return result.importance(), _effects(pairs, grid.level_means(result, rows))


def _effects(pairs: tuple[tuple[int, int], ...], means: list[Vector]) -> Vector:
    return np.array([effect_of(pair, of) for pair, of in zip(pairs, means, strict=True)])


def r2_of_half(study: Study, folds: int) -> float:
    """Return the held-out R² with half of the architectures: the second point of the learning curve."""
    architectures = int(study.groups.max()) + 1
    found = []
    for number in range(HALVINGS):
        random = study.random(HALVES, number)
        chosen = random.choice(architectures, max(folds, architectures // 2), replace=False)
        rows = np.flatnonzero(np.isin(study.groups, chosen))
        if np.ptp(study.target[rows]) > 0:
            found.append(_cross_validate(study, folds, 1, random, rows).r2())
    return float(np.mean(found)) if found else 0.0
