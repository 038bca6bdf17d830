"""Whether a short budget is a fair proxy for the whole: how well the order of architectures early on agrees with the
final one.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from resnas.evidence import Correlation, rank_correlation
from resnas.report.curves import Curve, curves
from resnas.report.material import Material
from resnas.study import derive_seed

FEWEST = 3
"""Architectures, for a correlation to be worth a point."""


class Agreement(NamedTuple):
    """The rank correlation of a metric after some steps with the same metric at the end, over architectures."""

    metric: str
    step: int
    share: float
    """Of the budget."""
    correlation: Correlation
    seed: int
    """Of the bootstrap."""


def agreements(material: Material) -> list[Agreement]:
    """Return the agreement of each objective, and of dilution, at every step at which most architectures have it."""
    names = list(dict.fromkeys([*material.objectives, "dilution"]))
    found = []
    for name, by_number in curves(material, names).items():
        seed = derive_seed(material.study.search.seed, "report budget", name)
        steps = sorted({step for curve in by_number.values() for step in curve})
        for step in steps:
            pairs = _pairs(material, name, by_number, step)
            if len(pairs) < max(FEWEST, len(material.architectures) / 2) or step > material.study.budget.steps:
                continue
            correlation = rank_correlation(*zip(*pairs, strict=True), seed=seed)
            if correlation.value is not None:
                found.append(Agreement(name, step, step / material.study.budget.steps, correlation, seed))
    return found


def _pairs(material: Material, name: str, by_number: dict[int, Curve], step: int) -> list[tuple[float, float]]:
    """Return (mean over seeds after `step`, mean over the same seeds at the end) of each architecture."""
    pairs = []
    for one in material.architectures:
        rows = [row for row in one.rows if step in by_number[row["number"]] and isinstance(row.get(name), int | float)]
        if rows:
            early = statistics.fmean(by_number[row["number"]][step] for row in rows)
            pairs.append((early, statistics.fmean(row[name] for row in rows)))
    return pairs
