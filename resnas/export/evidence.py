"""What a study says of one architecture: its seeds, the best of `fixed` beside it, the rankings, and confirmations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from resnas.comparison import BASELINE_FAMILY, Trained, comparable, trained
from resnas.errors import InputError
from resnas.evidence import Interval, difference_interval
from resnas.results import Direction, RecordedTrial, table
from resnas.study import Study


class Difference(NamedTuple):
    """How a metric of two architectures differs, over their seeds."""

    mean: float
    interval: Interval | None
    """90 % interval (Welch); None where one of the two has a single seed, or no seed changes anything."""


@dataclass(frozen=True)
class Evidence:
    """What a study says of one architecture."""

    study: str
    steps: int
    """Of each of its trials."""
    data_sha256: str
    """Of the trials that are compared; empty where there are none."""
    objectives: dict[str, Direction]
    architectures: int
    """Trained in the study."""
    here: Trained | None
    """The architecture; None where the study has no complete trial of it."""
    baseline: Trained | None
    """The best of the family `fixed`."""
    verdicts: tuple[str, ...]
    """Of the rankings, a sentence or two per target."""
    confirmations: tuple[str, ...]


def gather(study: Study, trials: Sequence[RecordedTrial], key: str) -> Evidence:
    """Return what a study says of the architecture with this key."""
    rows = comparable(table(trials))
    known = trained(rows, study.directions, study.limits)
    return Evidence(
        study=study.name,
        steps=study.budget.steps,
        data_sha256=str(rows[0]["data_sha256"]) if rows else "",
        objectives=study.directions,
        architectures=len(known),
        here=next((one for one in known if one.key == key), None),
        baseline=next((one for one in known if one.family == BASELINE_FAMILY), None),
        verdicts=_sentences(study.results_folder / "ranking.json"),
        confirmations=_sentences(study.results_folder / "confirm.json"),
    )


def difference(one: Trained, other: Trained, name: str) -> Difference:
    """Return how much higher a metric of `one` is than that of `other`, by means over seeds."""
    mean = one.mean(name) - other.mean(name)
    return Difference(mean, difference_interval(one.values(name), other.values(name)))


def _sentences(path: Path) -> tuple[str, ...]:
    """Return the sentence of each object of a JSON file; none where there is no such file. Raises InputError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        return tuple(str(one["sentence"]) for one in found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {error}); let resnas write it again"
        ) from error
