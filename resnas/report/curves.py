"""What a metric was during training: its values at the validations and measurements of each trial, by step."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from resnas.report.material import Material
from resnas.search.opening import trial_folder

Curve = dict[int, float]
"""Value by training step."""


def curves(material: Material, names: Iterable[str]) -> dict[str, dict[int, Curve]]:
    """Return the curve of each metric and comparable trial (by number), as far as it was written down.

    `metrics.csv` has the validations, `result.json` what was measured over depth; where a pruner was told values, the
    study has them as well.
    """
    names = list(names)
    found: dict[str, dict[int, Curve]] = {name: {} for name in names}
    told = {trial.number: dict(trial.intermediate_values) for trial in material.trials}
    for row in material.compared:
        number = row["number"]
        logged = _logged(trial_folder(material.study, number) / "metrics.csv", names)
        for name in names:
            curve = logged[name] or _measured(material.results.get(number, {}), name)
            if not curve and name == next(iter(material.objectives)):
                curve = told.get(number, {})
            found[name][number] = {step: value for step, value in curve.items() if math.isfinite(value)}
    return found


def _logged(path: Path, names: Iterable[str]) -> dict[str, Curve]:
    """Return what the log of a trial says of metrics; empty curves where there is no log."""
    found: dict[str, Curve] = {name: {} for name in names}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                for name, curve in found.items():
                    if line.get(name):
                        curve[int(line["step"])] = float(line[name])
    except (OSError, ValueError, KeyError, TypeError):
        return {name: {} for name in found}
    return found


def _measured(result: dict[str, Any], name: str) -> Curve:
    measurements = result.get("measurements") or []
    found = {one.get("step"): one.get("metrics", {}).get(name) for one in measurements}
    return {step: value for step, value in found.items() if isinstance(step, int) and isinstance(value, int | float)}
