"""The protocol on studies whose truth is known: how often it cries wolf on noise, and how often it finds what is there.

A planted study has twelve independent properties (numbers, yes/no, names with three values), two of which move the
target by equal shares; the signal-to-noise ratio is the variance of their effect over that of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas

from resnas.ranking.effects import BINS
from resnas.ranking.protocol import rank
from resnas.ranking.result import CONSTANT, SUPPORTED, Ranking

PROPERTIES = 12
TRUE_PROPERTIES = 2
MOST_TRIALS, FEWEST_TRIALS = 120, 60
"""A study of pure noise has so many trials; drawn evenly."""
PLANTED_TRIALS = 100
LEVELS = ("low", "middle", "high")
EFFECT = {"low": -1.0, "middle": 0.0, "high": 1.0}


@dataclass(frozen=True)
class Planted:
    """A study with a known truth: which properties move the target, and each one's effect as the ranking defines it."""

    table: pandas.DataFrame
    true: tuple[str, ...]
    effects: dict[str, float]


@dataclass(frozen=True)
class Rates:
    """What came out of many studies of one kind; shares of studies, but coverage, a share of intervals.

    Attributes:
        kind: noise, or the signal-to-noise ratio.
        studies: how many.
        reliable: with a ranking at all.
        any_false: in which any useless property is supported.
        all_true: in which both true properties are supported; None for noise.
        each_true: of the true properties, those supported; None for noise.
        coverage: of the 90 % intervals of effects in reliable rankings, those that hold the truth.
        intervals: how many.
    """

    kind: str
    studies: int
    reliable: float
    any_false: float
    all_true: float | None
    each_true: float | None
    coverage: float | None
    intervals: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def planted_study(seed: int, trials: int, signal_to_noise: float) -> Planted:
    """Return a study with two true properties among twelve; none where the ratio is 0. Noise has variance 1."""
    random = np.random.default_rng([seed, trials, round(1000 * signal_to_noise)])
    columns: dict[str, Any] = {"key": [f"architecture-{number}" for number in range(trials)]}
    for number in range(PROPERTIES):
        name = f"property_{number + 1}"
        if number % 3 == 0:
            columns[name] = 10 ** random.uniform(-3, -1, trials)
        elif number % 3 == 1:
            columns[name] = random.random(trials) < 0.5
        else:
            columns[name] = random.choice(LEVELS, trials)
    table = pandas.DataFrame(columns)
    names = [str(name) for name in table if name != "key"]
    true = tuple(map(str, random.choice(names, TRUE_PROPERTIES, replace=False))) if signal_to_noise else ()
    scale = np.sqrt(signal_to_noise / TRUE_PROPERTIES)
    signal = sum((scale * _influence(table[name]) for name in true), np.zeros(trials))
    table["target"] = signal + random.normal(size=trials)
    effects = {name: float(scale * _full_effect(table[name])) if name in true else 0.0 for name in names}
    return Planted(table, true, effects)


def _influence(column: pandas.Series) -> np.typing.NDArray[np.float64]:
    """Return the effect of a property on each row, of variance 1 in the population: straight over a number's logarithm,
    a step for yes/no, three steps for names."""
    if column.dtype == bool:
        return np.where(column, 1.0, -1.0)
    if column.dtype == object or not pandas.api.types.is_numeric_dtype(column):
        return np.asarray([EFFECT[str(value)] * np.sqrt(3 / 2) for value in column], dtype=np.float64)
    return np.asarray((np.log10(column) + 2) * np.sqrt(3), dtype=np.float64)


def _full_effect(column: pandas.Series) -> float:
    """Return the effect that a ranking should report: highest minus lowest fifth, yes minus no, or extreme names."""
    if column.dtype == bool:
        return 2.0
    if column.dtype == object or not pandas.api.types.is_numeric_dtype(column):
        return 2.0 * float(np.sqrt(3 / 2))
    return 2 * (1 - 1 / BINS) * float(np.sqrt(3))


def self_test(
    studies: int,
    seed: int,
    signal_to_noise: Sequence[float] = (0.0, 0.5, 1.0),
    progress: Callable[[str, float], None] | None = None,
    **effort: Any,
) -> list[Rates]:
    """Run the protocol on so many studies of each kind; `effort` is passed on to `rank`."""
    found = []
    for position, ratio in enumerate(signal_to_noise):
        kind = f"signal-to-noise {ratio:g}" if ratio else "pure noise"
        rankings = []
        for number in range(studies):
            if progress:
                progress(kind, (position + number / studies) / len(signal_to_noise))
            trials = PLANTED_TRIALS
            if not ratio:
                trials = int(np.random.default_rng([seed, number]).integers(FEWEST_TRIALS, MOST_TRIALS + 1))
            planted = planted_study(seed + number, trials, ratio)
            rankings.append((planted, rank(planted.table, list(planted.effects), "target", seed=number, **effort)))
        found.append(rates(kind, rankings))
    return found


def rates(kind: str, rankings: Sequence[tuple[Planted, Ranking]]) -> Rates:
    """Count what the rankings of studies with a known truth got right."""
    supported = [{one.name for one in ranking.effects if one.verdict == SUPPORTED} for _, ranking in rankings]
    true = [set(planted.true) for planted, _ in rankings]
    has_truth = any(true)
    covered = [
        one.effect_low <= planted.effects[one.name] <= one.effect_high
        for planted, ranking in rankings
        for one in ranking.effects
        if one.effect_low is not None and one.effect_high is not None and one.verdict != CONSTANT
    ]
    pairs = list(zip(supported, true, strict=True))
    return Rates(
        kind=kind,
        studies=len(rankings),
        reliable=float(np.mean([ranking.reliable for _, ranking in rankings])),
        any_false=float(np.mean([bool(found - of) for found, of in pairs])),
        all_true=float(np.mean([of <= found for found, of in pairs])) if has_truth else None,
        each_true=float(np.mean([len(of & found) / len(of) for found, of in pairs])) if has_truth else None,
        coverage=float(np.mean(covered)) if covered else None,
        intervals=len(covered),
    )
