"""What a report is made of: the table of trials, their measurements over depth, and the environment they were made in.

Plain data only. Whatever a study lacks (no complete trial, a trial's folder that is gone, no environment file) is an
empty value here, never an error: a report of half a study is still a report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from optuna.trial import FrozenTrial

from resnas.analysis import FAILED
from resnas.architecture import Stack
from resnas.comparison import BASELINE_FAMILY, Row, Trained, comparable, finite, trained
from resnas.report.confirmations import Confirmation, read_confirmations
from resnas.results import METRICS, Direction, completed, table
from resnas.search.opening import trial_folder
from resnas.study import Study


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
        return self.study.directions

    @cached_property
    def architectures(self) -> list[Trained]:
        """Architectures with a finite first objective, best first by its mean over seeds; last those beyond a limit."""
        return trained(self.compared, self.objectives, self.study.limits)

    @cached_property
    def families(self) -> list[str]:
        """Families that were trained, the baseline first, then by name."""
        return sorted({str(row["family"]) for row in self.rows}, key=lambda name: (name != BASELINE_FAMILY, name))

    @cached_property
    def varied_stack(self) -> list[str]:
        """Options of the stack that differ between the architectures, which their labels do not tell."""
        return [name for name in Stack.model_fields if len({one.property(name) for one in self.architectures}) > 1]

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
    def confirmations(self) -> list[Confirmation]:
        """What paired runs with fresh seeds said of the ranking's claims."""
        return read_confirmations(self.study.results_folder)

    @cached_property
    def _durations_s(self) -> dict[int, float]:
        lasted = {trial.number: trial.duration for trial in self.trials}
        return {number: duration.total_seconds() for number, duration in lasted.items() if duration is not None}

    def trial_time_s(self, row: Row) -> float:
        """Return the seconds that a trial trained; where that was not recorded (it failed), those that it ran."""
        recorded = finite([row.get("train_time_s")])
        return recorded[0] if recorded else self._durations_s.get(row["number"], 0.0)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, baselines and the like; without a file of the search, the versions of a trial that has them."""
        found = _read_json(self.study.results_folder / "environment.json")
        recorded = [result["versions"] for result in self.results.values() if result.get("versions")]
        return {"versions": recorded[0]} | found if recorded else found


def unit(name: str) -> str:
    """Return the unit of a metric; empty for those that only a task knows."""
    return METRICS[name].unit if name in METRICS else ""


def titled(name: str) -> str:
    """Return a metric with its unit, as an axis says it."""
    return f"{escape(name)} ({unit(name)})" if unit(name) else escape(name)


def called(target: str) -> str:
    """Return what a title calls the target of a ranking."""
    return "failing" if target == FAILED else target


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
