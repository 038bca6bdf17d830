"""What a report is made of: the table of trials, their measurements over depth, and the environment they were made in.

Plain data only. Whatever a study lacks (no complete trial, a trial's folder that is gone, no environment file) is an
empty value here, never an error: a report of half a study is still a report.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optuna.trial import FrozenTrial

from resnas.analysis import comparable
from resnas.results import METRICS, Direction, completed, table
from resnas.search.storage import trial_folder
from resnas.study import Study

BASELINE_FAMILY = "fixed"
Row = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """One architecture with the rows of all its complete, comparable trials (seeds)."""

    rows: tuple[Row, ...]

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


@dataclass(frozen=True)
class Material:
    """Everything that a report says about a study."""

    study: Study
    trials: Sequence[FrozenTrial]

    @cached_property
    def rows(self) -> list[Row]:
        """One row per trained trial, whatever its ending."""
        return table(self.trials)

    @cached_property
    def compared(self) -> list[Row]:
        """The complete rows on the data that most were trained on."""
        return comparable(self.rows)

    @property
    def excluded(self) -> int:
        """Complete trials that were trained on other data, and so are compared with none."""
        return len(completed(self.rows)) - len(self.compared)

    @property
    def objectives(self) -> dict[str, Direction]:
        """Objectives of the study and which way is better."""
        return {name: direction or "minimize" for name, direction in self.study.objectives.items()}

    @cached_property
    def architectures(self) -> list[Trained]:
        """Architectures with a finite first objective, best first by its mean over seeds."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.compared:
            groups[row["key"]].append(row)
        name, direction = next(iter(self.objectives.items()))
        trained = [Trained(tuple(rows)) for rows in groups.values()]
        known = [one for one in trained if math.isfinite(one.mean(name))]
        return sorted(known, key=lambda one: sign(direction) * one.mean(name))

    @cached_property
    def families(self) -> list[str]:
        """Families that were trained, the baseline first, then by name."""
        return sorted({str(row["family"]) for row in self.rows}, key=lambda name: (name != BASELINE_FAMILY, name))

    @cached_property
    def results(self) -> dict[int, dict[str, Any]]:
        """The result of each complete, comparable trial that still has its file."""
        files = {row["number"]: trial_folder(self.study, row["number"]) / "result.json" for row in self.compared}
        return {number: result for number, path in files.items() if (result := _read_json(path))}

    @cached_property
    def measurements(self) -> dict[int, dict[str, Any]]:
        """The last measurement (after the last step) of each of these results that has one."""
        found = {number: _last_measurement(result) for number, result in self.results.items()}
        return {number: measured for number, measured in found.items() if measured}

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, baselines and the like; without a file of the search, the versions of the first trial that has them."""
        found = _read_json(self.study.results_folder / "environment.json")
        recorded = [result["versions"] for result in self.results.values() if result.get("versions")]
        return {"versions": recorded[0]} | found if recorded else found


def finite(values: Iterable[Any]) -> list[float]:
    """Return the finite numbers among values."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return [float(value) for value in numbers if math.isfinite(value)]


def sign(direction: Direction) -> int:
    """Return 1 where less is better, else −1: times this, less is always better."""
    return 1 if direction == "minimize" else -1


def unit(name: str) -> str:
    """Return the unit of a metric; empty for those that only a task knows."""
    return METRICS[name].unit if name in METRICS else ""


def pareto_front(architectures: Sequence[Trained], objectives: dict[str, Direction]) -> list[Trained]:
    """Return the architectures that no other one beats: as good in all objectives and better in one."""
    points = {
        one.key: [sign(way) * one.mean(name) for name, way in objectives.items()]
        for one in architectures
        if all(math.isfinite(one.mean(name)) for name in objectives)
    }
    return [
        one
        for one in architectures
        if one.key in points and not any(_dominates(other, points[one.key]) for other in points.values())
    ]


def _dominates(one: list[float], other: list[float]) -> bool:
    """Whether `one` is nowhere greater than `other`, and somewhere less."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _last_measurement(result: dict[str, Any]) -> dict[str, Any]:
    measurements: list[dict[str, Any]] = result.get("measurements") or [{}]
    return measurements[-1] if measurements[-1].get("profiles") else {}


def _read_json(path: Any) -> dict[str, Any]:
    """Return the mapping in a JSON file; empty where there is none or it cannot be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
