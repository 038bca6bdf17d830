"""What a task is: its YAML options and the shape of its inputs and outputs (torch-free), and the data that it loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from resnas.record import Record

if TYPE_CHECKING:
    from torch import Tensor

    Batch = tuple[Tensor, Tensor]
    """Inputs (token numbers [examples, tokens], or patches [examples, tokens, features]) and targets
    ([examples, tokens] or [examples]; -100 marks a position without a target)."""

Split = Literal["validation", "test"]
Direction = Literal["minimize", "maximize"]
IGNORED = -100
"""Target of a position that does not count."""


@dataclass(frozen=True)
class TaskShape:
    """What a model must know of a task."""

    inputs: Literal["tokens", "patches"]
    input_size: int
    """Number of different tokens, or features of a patch."""
    context: int
    """Tokens (or patches) per example."""
    outputs: int
    """Number of classes."""
    causal: bool
    """A position sees only itself and earlier ones (decoder), or all (encoder)."""
    pooled: bool
    """One prediction per example, from the mean over positions, instead of one per position."""


class TaskData(Protocol):
    """Loaded data; nothing in it changes after loading."""

    sha256: str
    """Hash of all data that can reach the model; results with different hashes are never compared."""

    def train_batches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield training batches without end; the same for the same seed, whatever the architecture."""
        ...

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> list[Batch]:
        """Return the fixed batches of a split, the first `limit` of them."""
        ...

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return for each metric a numerator and a denominator of this batch; the metric is the ratio of their sums."""
        ...


class Task(Record):
    """YAML options of a task: subclass, declare the options as fields."""

    @property
    def metric_directions(self) -> dict[str, Direction]:
        """The metrics of its data, beside the loss that every task has, and which way is better.

        A plain class variable may take the place of this property where the options do not change the metrics.
        """
        return {}

    def shape(self) -> TaskShape:
        """Return the shape of inputs and outputs; must not load torch or data."""
        raise NotImplementedError(f"{type(self).__name__} must implement shape()")

    def load(self) -> TaskData:
        """Load (or make) the data. Raises `resnas.errors.InputError` where it cannot be used."""
        raise NotImplementedError(f"{type(self).__name__} must implement load()")

    def baselines(self) -> dict[str, float]:
        """Return reference values to put beside the model's metrics (compressors, shortcuts), by `metric/source`."""
        return {}
