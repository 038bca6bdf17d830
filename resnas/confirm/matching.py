"""Equal size: the changed architecture's MLP is made wider or narrower until it costs what the base costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from resnas import cost
from resnas.architecture import Architecture
from resnas.confirm.change import NotTestable, with_option
from resnas.tasks.task import TaskShape

Quantity = Literal["parameters", "flops"]
TOLERANCE = 0.01
"""Largest relative difference that counts as equal."""
MLP_RATIO = "architecture.mlp_ratio"
COSTS: dict[Quantity, Callable[[Architecture, TaskShape], int]] = {"parameters": cost.parameters, "flops": cost.flops}


@dataclass(frozen=True)
class Matched:
    """What was made equal, and how nearly."""

    quantity: Quantity
    base: int
    changed: int
    mlp_ratio: float
    """Of the changed architecture."""


def matched(base: Architecture, changed: Architecture, shape: TaskShape, quantity: Quantity) -> Architecture:
    """Return the changed architecture with the `mlp_ratio` that gives it the cost of the base, to within 1 %.

    Raises:
        NotTestable: no `mlp_ratio` does, or it is what was changed.
    """
    cost_of = COSTS[quantity]
    wanted = cost_of(base, shape)
    if base.mlp_ratio != changed.mlp_ratio:
        raise NotTestable(f"--match {quantity}: mlp_ratio is itself what is changed, so it cannot make both equal")
    one = 2 / 3 if changed.mlp == "swiglu" else 1.0
    ratio_of_one = 1 / (one * changed.width)

    def of_width(mlp_width: int) -> Architecture:
        return with_option(changed, MLP_RATIO, mlp_width * ratio_of_one)

    least = cost_of(of_width(1), shape)
    per_feature = cost_of(of_width(2), shape) - least
    fitted = of_width(max(1, 1 + round((wanted - least) / per_feature)))
    fitted = changed if cost_of(changed, shape) == wanted else fitted
    reached = cost_of(fitted, shape)
    if abs(reached - wanted) > TOLERANCE * wanted:
        raise NotTestable(
            f"--match {quantity}: the changed architecture has {reached:,} {quantity} at the nearest mlp_ratio "
            f"({fitted.mlp_ratio:.3g}), the base {wanted:,}; they cannot be made equal within {TOLERANCE:.0%}"
        )
    return fitted


def reached(base: Architecture, changed: Architecture, shape: TaskShape, quantity: Quantity) -> Matched:
    """Return what two matched architectures cost."""
    cost_of = COSTS[quantity]
    return Matched(quantity, cost_of(base, shape), cost_of(changed, shape), changed.mlp_ratio)
