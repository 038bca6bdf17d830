"""What a benchmark measures: variants of a model at one size, and the figures that come out (no torch here)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from resnas.architecture import Architecture
from resnas.errors import InputError
from resnas.residual import Fixed, Topology
from resnas.tasks.task import TaskShape

Implementation = Literal["resnas", "definition", "stack"]
"""resnas: as trials train. definition: the rule's plain definition under autograd. stack: all sources stacked at every
read, as public code of depth attention does."""
CLASSES = 256
HEADS = 4


@dataclass(frozen=True)
class Variant:
    """A residual topology, and how it is implemented."""

    residual: Topology
    implementation: Implementation = "resnas"


@dataclass(frozen=True)
class Case:
    """The size and the circumstances at which variants are compared."""

    depth: int
    """Layers; two sublayers each."""
    width: int
    tokens: int
    """Per training step."""
    context: int
    """Tokens per example."""
    threads: int
    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast."""
    warmup: int = 4
    """Rounds before those that count: a memory allocator needs several steps to settle."""
    repeats: int = 7
    """Rounds that count; each takes one step of every variant."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens % self.context:
            raise InputError(
                f"tokens {self.tokens} are not whole examples of context {self.context}; give a multiple of it"
            )
        if reason := self.architecture(Fixed()).infeasible():
            raise InputError(reason)

    def architecture(self, residual: Topology) -> Architecture:
        """Return the architecture of a variant."""
        return Architecture(depth=self.depth, width=self.width, heads=HEADS, residual=residual)

    @property
    def shape(self) -> TaskShape:
        """A decoder of bytes."""
        return TaskShape("tokens", CLASSES, self.context, CLASSES, causal=True, pooled=False)


@dataclass
class Measured:
    """What was measured of one variant at one size; what is empty was not measured.

    Attributes:
        step_times_s: of training steps (forward, backward, optimiser), one per round.
        fixed_times_s: of `fixed` in the same rounds.
        peak_memory_bytes: most memory that training took, beyond what the process had before there was a model:
            resident memory on a CPU, allocated memory on CUDA.
        fixed_memory_bytes: the same of `fixed`.
        token_times_s: of generated tokens, one example at a time with a cache of keys and values.
        fixed_token_times_s: of `fixed` in the same rounds.
        failures: why something was not measured.
    """

    case: Case
    variant: Variant
    step_times_s: list[float] = field(default_factory=list)
    fixed_times_s: list[float] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    fixed_memory_bytes: int | None = None
    token_times_s: list[float] = field(default_factory=list)
    fixed_token_times_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The topology as tables name it."""
        return self.case.architecture(self.variant.residual).label

    @property
    def ratios(self) -> list[float]:
        """Step time over that of `fixed`, round by round."""
        return [own / fixed for own, fixed in zip(self.step_times_s, self.fixed_times_s, strict=True)]

    def row(self) -> dict[str, Any]:
        """Return the figures as a row of a table: medians, and the quartiles of the ratio."""
        case, ratios = self.case, self.ratios
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [None] * 3
        memory = self.peak_memory_bytes
        return {
            "residual": self.label,
            "implementation": self.variant.implementation,
            "depth": case.depth,
            "width": case.width,
            "tokens": case.tokens,
            "threads": case.threads,
            "step_ms": _milliseconds(self.step_times_s),
            "ratio": _rounded(statistics.median(ratios)) if ratios else None,
            "ratio_q1": _rounded(quartiles[0]),
            "ratio_q3": _rounded(quartiles[2]),
            "rounds": len(ratios),
            "memory_mib": None if memory is None else round(memory / 2**20),
            "memory_ratio": _rounded(memory / self.fixed_memory_bytes) if memory and self.fixed_memory_bytes else None,
            "token_ms": _milliseconds(self.token_times_s),
            "token_ratio": _rounded(_paired_ratio(self.token_times_s, self.fixed_token_times_s)),
            "device": case.device,
            "precision": case.precision,
            "failure": "; ".join(self.failures) or None,
        }


def rows(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return a row per variant and size."""
    return [one.row() for one in measured]


def _paired_ratio(own: Sequence[float], fixed: Sequence[float]) -> float | None:
    return statistics.median(a / b for a, b in zip(own, fixed, strict=True)) if own and fixed else None


def _milliseconds(times_s: Sequence[float]) -> float | None:
    return round(1000 * statistics.median(times_s), 3) if times_s else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
