"""What makes trials fail: the share of architectures that failed, by the level of each property."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from resnas.evidence import Interval, share_interval
from resnas.report.material import Material
from resnas.report.words import number
from resnas.results import property_names

MOST_LEVELS = 6
"""Of a number; one with more values is cut into thirds of the architectures."""


class Level(NamedTuple):
    """One level of a property: how many architectures have it, and how many of those failed."""

    property: str
    level: str
    architectures: int
    failed: int
    share: float
    interval: Interval


def failed_shares(material: Material) -> list[Level]:
    """Return the share of failed architectures by level, the properties whose levels are told apart best first.

    Nothing where no architecture failed.
    An architecture is not trained again once it failed, so each counts once.
    """
    rows = {str(row["key"]): row for row in material.rows}
    failed = {str(row["key"]) for row in material.rows if row["ending"] == "failed"}
    if not failed:
        return []
    groups = [_levels(name, rows, failed) for name in property_names(material.trials)]
    varied = [levels for levels in groups if len(levels) > 1]
    return [level for levels in sorted(varied, key=_separation, reverse=True) for level in levels]


def _separation(levels: Sequence[Level]) -> float:
    """Return how far the levels lie apart beyond their intervals, so that a level of few architectures counts "
    "little."""
    return max(one.interval.low for one in levels) - min(one.interval.high for one in levels)


def _levels(name: str, rows: dict[str, dict[str, Any]], failed: set[str]) -> list[Level]:
    """Return the levels of one property, in rising order; where it does not apply, an architecture takes no part."""
    known = {key: row[name] for key, row in rows.items() if row.get(name) is not None}
    named = _cut_into_thirds(known) if _is_measured(list(known.values())) else {k: _plain(v) for k, v in known.items()}
    keys: dict[str, list[str]] = defaultdict(list)
    for key in sorted(known, key=lambda key: (isinstance(known[key], str), known[key])):
        keys[named[key]].append(key)
    found = []
    for level, members in keys.items():
        count = len(failed & set(members))
        found.append(Level(name, level, len(members), count, count / len(members), share_interval(count, len(members))))
    return found


def _is_measured(values: Sequence[Any]) -> bool:
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return is_number and len(set(values)) > MOST_LEVELS


def _cut_into_thirds(known: dict[str, float]) -> dict[str, str]:
    """Return the third of the architectures that each belongs to, by its ends."""
    ends = np.quantile(list(known.values()), [0, 1 / 3, 2 / 3, 1])
    third = {key: int(np.searchsorted(ends[1:3], value, side="left")) for key, value in known.items()}
    return {key: f"{number(float(ends[one]), 3)} to {number(float(ends[one + 1]), 3)}" for key, one in third.items()}


def _plain(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else number(value)
