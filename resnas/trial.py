"""What one trial is told, and what it gives back: plain records that travel between processes (no torch here)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["complete", "pruned", "failed"]
Cause = Literal[
    "non-finite loss",
    "out of memory",
    "timeout",
    "exception",
    "invalid result",
    "killed",
    "node lost",
    "disk full",
]
"""Why a trial failed, as a machine may count it; `TrialResult.reason` begins with it and says more."""
TRANSIENT: tuple[Cause, ...] = ("killed", "node lost")
"""Causes that lie outside the trial: the same trial may well end differently the next time."""
ENDING_OPTIONS = ("max_time",)
"""Options of Lightning's Trainer that may end a run early, and change nothing in what is trained."""


@dataclass(frozen=True)
class TrialSpec:
    """Everything that a trial needs; two trials with equal specs give equal metrics on one machine.

    Attributes:
        architecture: `Architecture.model_dump()`.
        task: the task's YAML name and options, {name: {option: value}}.
        budget: `Budget.model_dump()`.
        seed: of the initial weights.
        data_seed: of the order of training batches; equal for all architectures of one replicate, so that they are
            paired.
        folder: where the trial writes its files.
        threads: CPU threads of the trial's process.
        checkpoint: the `last.ckpt` of an equal trial that was interrupted, to go on from; one that cannot be used is
            ignored, with a warning in the trial's log.
        test: whether the trained model is measured on the whole test split as well (metrics `test_…`); a search never
            asks for that.
        trainer: options of Lightning's Trainer; a search gives none. Batches per step and devices multiply the examples
            of a step.
    """

    architecture: dict[str, Any]
    task: dict[str, Any]
    budget: dict[str, Any]
    seed: int
    data_seed: int
    folder: str
    threads: int = 1
    checkpoint: str | None = None
    test: bool = False
    trainer: dict[str, Any] = field(default_factory=dict)

    @property
    def lasting_options(self) -> dict[str, Any]:
        """Options of Lightning's Trainer that what is trained depends on."""
        return {name: value for name, value in self.trainer.items() if name not in ENDING_OPTIONS}


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended and what was measured.

    Attributes:
        state: complete, pruned, or failed.
        reason: why it was pruned or failed, in words; empty for a complete trial.
        cause: of a failure.
        metrics: final figures by name (`resnas.results.METRICS` and those of the task).
        data_sha256: hash of the data; results with different hashes are never compared.
        versions: of what the figures depend on.
        measurements: dilution at the steps of `Budget.measure_at`: step, metrics, profiles over depth, mixing matrix.
    """

    state: State
    reason: str = ""
    cause: Cause | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    data_sha256: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    measurements: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def failure(cls, cause: Cause, detail: str, data_sha256: str = "") -> TrialResult:
        """Return a failed result whose reason is `cause: detail`."""
        return cls("failed", f"{cause}: {detail}", cause, data_sha256=data_sha256)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)
