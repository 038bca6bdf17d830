"""The metrics by name, unit and meaning; how a trial is recorded in the study; and the table of all trials.

The truth is the Optuna study: what is written here as files can be written again from it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from resnas.architecture import PROPERTIES, Architecture
from resnas.atomic import write_text

Direction = Literal["minimize", "maximize"]


class Metric(NamedTuple):
    """What a metric means, in which unit, and which way is better."""

    unit: str
    direction: Direction
    meaning: str


METRICS: dict[str, Metric] = {
    "val_loss": Metric("nats", "minimize", "cross-entropy on the validation split after the last step"),
    "dilution": Metric(
        "slope",
        "minimize",
        "how fast the newest source's share of a read falls with depth: 1 in an equal-norm PreNorm stream, 0 where it "
        "does not fall",
    ),
    "effective_depth": Metric("share", "maximize", "share of the sublayers that the loss depends on, by removing each"),
    "late_share": Metric("share", "maximize", "share of that dependence in the deeper half"),
    "gradient_gini": Metric("0 to 1", "minimize", "inequality over sublayers of the loss gradient at their outputs"),
    "output_growth": Metric("slope", "minimize", "log-log growth over depth of the size of what sublayers write"),
    "parameters": Metric("parameters", "minimize", "trained parameters of the model"),
    "flops": Metric("FLOPs", "minimize", "FLOPs of one forward pass over one example"),
    "step_time_s": Metric("s", "minimize", "median wall time of a training step"),
    "train_time_s": Metric("s", "minimize", "wall time of training and validation"),
    "start_time_s": Metric(
        "s", "minimize", "wall time from the start of the trial's process to its first training step"
    ),
    "gradient_norm": Metric("norm", "minimize", "median gradient norm before clipping"),
    "loss_spikes": Metric("steps", "minimize", "steps whose loss jumps far above the running median"),
}


def unit_of(name: str) -> str:
    """Return the unit of a metric, that of the test split included; empty for what only a task knows."""
    metric = METRICS.get(f"val_{name.removeprefix('test_')}" if name.startswith("test_") else name)
    return metric.unit if metric else ""


COUNTED = ("complete", "pruned", "failed")
"""Endings that use up one of the study's trials.

The others: interrupted and retried trials run again; infeasible and skipped proposals were never trained.
"""


class Attributed(Protocol):
    """Something with the attributes of a trial."""

    @property
    def user_attrs(self) -> dict[str, Any]:
        """Attributes as the search wrote them."""
        ...


class RecordedTrial(Attributed, Protocol):
    """What is needed of an Optuna trial."""

    @property
    def number(self) -> int:
        """Number in the study."""
        ...

    @property
    def state(self) -> Enum:
        """Optuna's state: WAITING, RUNNING, COMPLETE, PRUNED or FAIL."""
        ...


class Recorded(NamedTuple):
    """The attributes of a trial that the search keeps in the study, under the name `resnas.<field>`.

    Metrics stand beside them under their own names, so that the dashboard can sort and plot them.
    """

    architecture: dict[str, Any] | None = None
    key: str = ""
    label: str = ""
    replicate: int = 0
    seed: int = 0
    data_seed: int = 0
    origin: str = ""
    ending: str = "running"
    reason: str = ""
    cause: str = ""
    """Of a failure: one of `resnas.trial.Cause`."""
    attempt: int = 1
    """Counts the runs of one architecture and replicate that ended for a reason outside them."""
    owner: str = ""
    """The coordinator that started it."""
    where: str = ""
    """Host and process."""
    step: int = 0
    """The last training step that was reported."""
    data_sha256: str = ""

    @classmethod
    def of(cls, trial: Attributed) -> Recorded:
        """Read the attributes of a trial."""
        names = {name: f"resnas.{name}" for name in cls._fields}
        return cls(**{name: trial.user_attrs[full] for name, full in names.items() if full in trial.user_attrs})


def ending_counts(trials: Iterable[RecordedTrial]) -> dict[str, int]:
    """Return how many trials ended how; those that wait in the queue or run, and infeasible ones, included."""
    counts = dict.fromkeys(COUNTED, 0)
    for trial in trials:
        ending = "queued" if trial.state.name == "WAITING" else Recorded.of(trial).ending
        counts[ending] = counts.get(ending, 0) + 1
    return counts


def metrics_of(trial: RecordedTrial) -> dict[str, float]:
    """Return the metrics of a trial."""
    return {name: value for name, value in trial.user_attrs.items() if not name.startswith("resnas.")}


def table(trials: Iterable[RecordedTrial]) -> list[dict[str, Any]]:
    """Return one row per trial that was trained: bookkeeping, properties, metrics."""
    rows = []
    for trial in trials:
        recorded = Recorded.of(trial)
        if recorded.architecture is None or recorded.ending not in COUNTED:
            continue
        properties = Architecture(**recorded.architecture).properties()
        bookkeeping = {name: getattr(recorded, name) for name in Recorded._fields if name != "architecture"}
        rows.append({"number": trial.number, **bookkeeping, **properties, **metrics_of(trial)})
    return rows


def completed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of complete trials."""
    return [row for row in rows if row["ending"] == "complete"]


def property_names(trials: Iterable[RecordedTrial]) -> list[str]:
    """Return the names of the properties of the trials' architectures, those of the user's own topologies included."""
    names = dict.fromkeys(PROPERTIES)
    for trial in trials:
        if architecture := Recorded.of(trial).architecture:
            names |= dict.fromkeys(Architecture(**architecture).properties())
    return list(names)


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a table, whole or not at all."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
