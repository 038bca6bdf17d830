"""Which architectures are better: complete trials on the same data, grouped by architecture over their seeds."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from resnas.results import Direction, completed

Row = dict[str, Any]
BASELINE_FAMILY = "fixed"
"""What every other family is compared with."""


class BoundLike(Protocol):
    """A limit of a metric, as `resnas.study.Bound`."""

    def excesses(self, name: str, value: float) -> dict[str, float]:
        """Return how far a value is beyond each limit, by a readable name."""
        ...


@dataclass(frozen=True)
class Trained:
    """One architecture with the rows of all its complete, comparable trials (seeds)."""

    rows: tuple[Row, ...]
    beyond: tuple[str, ...] = ()
    """The study's limits that it breaks, by the means over seeds."""

    @property
    def key(self) -> str:
        """Key of the architecture."""
        return str(self.rows[0]["key"])

    @property
    def label(self) -> str:
        """Family and its options."""
        return str(self.rows[0]["label"])

    @property
    def family(self) -> str:
        """YAML name of the residual topology."""
        return str(self.rows[0]["family"])

    @property
    def depth(self) -> int:
        """Layers."""
        return int(self.rows[0]["depth"])

    def property(self, name: str) -> Any:
        """Return a property of the architecture; None where it does not apply."""
        return self.rows[0].get(name)

    def values(self, name: str) -> list[float]:
        """Return the finite values of a metric, one per seed."""
        return finite(row.get(name) for row in self.rows)

    def mean(self, name: str) -> float:
        """Return the mean of a metric over seeds; NaN where it was not measured."""
        values = self.values(name)
        return statistics.fmean(values) if values else math.nan

    def deviation(self, name: str) -> float | None:
        """Return the standard deviation of a metric over seeds; None with fewer than two."""
        values = self.values(name)
        return statistics.stdev(values) if len(values) > 1 else None


def trained(
    rows: Iterable[Row], objectives: dict[str, Direction], limits: Mapping[str, BoundLike] | None = None
) -> list[Trained]:
    """Return the architectures with a finite first objective, best first by its mean over seeds; those that break a
    limit come after all that do not."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["key"]].append(row)
    name, direction = next(iter(objectives.items()))
    all_trained = [_within(Trained(tuple(group)), limits or {}) for group in groups.values()]
    known = [one for one in all_trained if math.isfinite(one.mean(name))]
    return sorted(known, key=lambda one: (bool(one.beyond), sign(direction) * one.mean(name)))


def _within(one: Trained, limits: Mapping[str, BoundLike]) -> Trained:
    """Return the architecture with the limits that it breaks."""
    excesses = [bound.excesses(name, one.mean(name)) for name, bound in limits.items()]
    return replace(one, beyond=tuple(limit for part in excesses for limit, excess in part.items() if not excess <= 0))


def is_beyond(excesses: Mapping[str, float]) -> bool:
    """Whether a trial breaks a limit, by how far it is beyond each."""
    return any(excess > 0 for excess in excesses.values())


def comparable(rows: Sequence[Row]) -> list[Row]:
    """Return the complete rows that were trained on the same data as most: others are never compared with them."""
    rows = completed(rows)
    hashes = Counter(row["data_sha256"] for row in rows)
    return [row for row in rows if row["data_sha256"] == hashes.most_common(1)[0][0]]


def finite(values: Iterable[Any]) -> list[float]:
    """Return the finite numbers among values."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return [float(value) for value in numbers if math.isfinite(value)]


def sign(direction: Direction) -> int:
    """Return 1 where less is better, else −1: times this, less is always better."""
    return 1 if direction == "minimize" else -1


def pareto_front(architectures: Sequence[Trained], objectives: dict[str, Direction]) -> list[Trained]:
    """Return the architectures that no other one beats, as good in all objectives and better in one; among those that
    break no limit."""
    points = {
        one.key: [sign(way) * one.mean(name) for name, way in objectives.items()]
        for one in architectures
        if not one.beyond and all(math.isfinite(one.mean(name)) for name in objectives)
    }
    return [
        one
        for one in architectures
        if one.key in points and not any(dominates(other, points[one.key]) for other in points.values())
    ]


def dominates(one: list[float], other: list[float]) -> bool:
    """Whether `one` is nowhere greater than `other`, and somewhere less."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
