"""Profiles over depth per family, and depth-mixing matrices: the numbers behind the figures, without plotly."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resnas.comparison import Trained
from resnas.evidence import mean_interval
from resnas.report.material import Material

LOW_PERCENT, HIGH_PERCENT = 5, 95
"""A band holds the middle 90 % of the architectures."""
SMALLEST = 1e-9
"""A share below this counts as this where logarithms are taken."""


@dataclass(frozen=True)
class Band:
    """A profile over depth of all architectures of one family and depth.

    Attributes:
        family: YAML name of the residual topology.
        depth: layers.
        n: architectures.
        positions: number of the read or sublayer.
        mean: over architectures (each the mean of its seeds), per position; geometric for a logarithmic axis.
        low: 5th percentile over architectures, per position.
        high: 95th percentile over architectures, per position.
        mean_low: lower end of the 90 % interval of the mean (Student's), per position; None of a single architecture.
        mean_high: its upper end.
    """

    family: str
    depth: int
    n: int
    positions: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    mean_low: list[float] | None
    mean_high: list[float] | None

    def to_rows(self, position: str) -> list[dict[str, object]]:
        """Return one row per position (named so), for a file."""
        unknown = [None] * len(self.positions)
        columns = {
            position: self.positions,
            "mean": self.mean,
            "mean_low": self.mean_low or unknown,
            "mean_high": self.mean_high or unknown,
            "percentile_5": self.low,
            "percentile_95": self.high,
        }
        shared = {"family": self.family, "depth": self.depth, "architectures": self.n}
        return [shared | dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def bands(material: Material, profile: str, first: int, *, logarithmic: bool = False) -> list[Band]:
    """Return the bands of a profile whose first value belongs to read or sublayer `first`, by family and depth."""
    groups: dict[tuple[str, int], list[NDArray[np.float64]]] = defaultdict(list)
    for one in material.architectures:
        values = _mean_profile(material, one, profile)
        if values is not None:
            groups[one.family, one.depth].append(values)
    ordered = sorted(groups.items(), key=lambda item: (material.families.index(item[0][0]), item[0][1]))
    return [band(family, depth, profiles, first, logarithmic=logarithmic) for (family, depth), profiles in ordered]


def band(
    family: str, depth: int, profiles: Sequence[NDArray[np.float64]], first: int, *, logarithmic: bool = False
) -> Band:
    """Summarise profiles of equal length, one per architecture; `logarithmic`: by geometric means, whose interval is
    that of the mean of logarithms."""
    stacked = np.stack(profiles)
    scaled = np.log(np.maximum(stacked, SMALLEST)) if logarithmic else stacked
    back = np.exp if logarithmic else np.asarray
    low, high = np.percentile(stacked, [LOW_PERCENT, HIGH_PERCENT], axis=0)
    intervals = [mean_interval(column) for column in scaled.T.tolist()]
    known = [one for one in intervals if one is not None]
    return Band(
        family=family,
        depth=depth,
        n=len(stacked),
        positions=list(range(first, first + stacked.shape[1])),
        mean=back(scaled.mean(axis=0)).tolist(),
        low=low.tolist(),
        high=high.tolist(),
        mean_low=back([one.low for one in known]).tolist() or None,
        mean_high=back([one.high for one in known]).tolist() or None,
    )


def best_matrices(material: Material) -> list[tuple[Trained, int, list[list[float]]]]:
    """Return, per family, the best architecture that was measured, the number of its first measured trial, and the
    depth-mixing matrix of that."""
    found: dict[str, tuple[Trained, int, list[list[float]]]] = {}
    for one in material.architectures:
        for row in one.rows:
            matrix = material.measurements.get(row["number"], {}).get("matrix")
            if matrix and one.family not in found:
                found[one.family] = (one, row["number"], matrix)
    return [found[family] for family in material.families if family in found]


def against_even(matrix: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """Return log2 of each weight over the even split of its read: 0 is an even split, None is a source not read.

    Args:
        matrix: matrix[l − 1][i] is the weight ≥ 0 of source i in read l; rows grow by one.

    Returns:
        A square of as many columns as the last read has sources.
    """
    width = len(matrix[-1])
    rows = []
    for row in matrix:
        even = sum(row) / len(row)
        relative = [math.log2(weight / even) if weight > 0 else None for weight in row]
        rows.append([*relative, *[None] * (width - len(row))])
    return rows


def _mean_profile(material: Material, one: Trained, name: str) -> NDArray[np.float64] | None:
    """Return the mean over seeds of a profile; None where no seed has a finite one."""
    numbers = [row["number"] for row in one.rows if row["number"] in material.measurements]
    profiles = [np.asarray(material.measurements[n]["profiles"].get(name, []), dtype=float) for n in numbers]
    usable = [values for values in profiles if values.size and np.isfinite(values).all()]
    if not usable:
        return None
    mean: NDArray[np.float64] = np.mean(usable, axis=0)
    return mean
