"""What one field of a space may be: choices (a constant is one choice) or a range, and how a value is picked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Protocol

Value = Any
"""A plain value: number, text, true, false or null."""

_TOLERANCE = 1e-9
"""How far, in steps, a sampler's float may be from the step that it means."""


class TrialLike(Protocol):
    """The part of `optuna.Trial` that a space uses."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number from low to high, both included."""
        ...

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number from low to high."""
        ...


@dataclass(frozen=True)
class Choices:
    """Values without order; a constant is the only choice."""

    values: tuple[Value, ...]

    @property
    def varies(self) -> bool:
        """Is there more than one value?"""
        return len(self.values) > 1

    @property
    def count(self) -> int | None:
        """Number of values."""
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    @property
    def middle(self) -> Value:
        """The first choice."""
        return self.values[0]

    def suggest(self, trial: TrialLike, name: str) -> Value:
        """Ask a trial for a value; a constant asks nothing."""
        return trial.suggest_categorical(name, list(self.values)) if self.varies else self.values[0]

    def find(self, value: Value) -> Value:
        """Return the choice that equals `value`. Raises ValueError where none does."""
        for choice in self.values:
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return choice
        raise ValueError(f"{value!r} is not one of {list(self.values)}")

    def plain(self) -> Any:
        """Return the constant, or the list of choices, as YAML has it."""
        return list(self.values) if self.varies else self.values[0]


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; whole where low is whole."""

    low: int | float
    high: int | float
    step: int | float | None = None
    log: bool = False

    varies = True

    @property
    def whole(self) -> bool:
        """Are the values whole numbers?"""
        return isinstance(self.low, int)

    @property
    def count(self) -> int | None:
        """Number of values; None where the range is continuous."""
        if self._step is None:
            return None
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) // Decimal(str(self._step))) + 1

    @property
    def _step(self) -> int | float | None:
        return 1 if self.whole and self.step is None else self.step

    def _at(self, position: int) -> Value:
        """Return the value `position` steps above low, computed in decimal as a person would."""
        value = Decimal(str(self.low)) + position * Decimal(str(self._step))
        return int(value) if self.whole else float(value)

    @property
    def last(self) -> Value:
        """The highest value that steps from low reach."""
        return self.high if self.count is None else self._at(self.count - 1)

    def __iter__(self) -> Iterator[Value]:
        if self.count is None:
            raise ValueError("a continuous range cannot be listed")
        return (self._at(position) for position in range(self.count))

    @property
    def middle(self) -> Value:
        """The middle (geometric where log), rounded to the step."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return self._nearest(middle)

    def _nearest(self, value: float) -> Value:
        if self.count is None:
            return float(value)
        position = round((value - self.low) / self._step)  # type: ignore[operator]
        return self._at(min(max(position, 0), self.count - 1))

    def suggest(self, trial: TrialLike, name: str) -> Value:
        """Ask a trial for a value."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), self.last, step=int(self._step or 1), log=self.log)
        return self._nearest(trial.suggest_float(name, self.low, self.last, step=self.step, log=self.log))

    def find(self, value: Value) -> Value:
        """Return the value of this range that `value` means. Raises ValueError where it means none."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self.count is None and self.low <= value <= self.high:
            return float(value)
        if number and self._step is not None and math.isfinite(value):
            nearest = self._nearest(value)
            if abs(nearest - value) <= _TOLERANCE * self._step:
                return nearest
        raise ValueError(f"{value!r} is not in {self.plain()}")

    def plain(self) -> dict[str, Any]:
        """Return the mapping that YAML has."""
        step = {} if self.step is None else {"step": self.step}
        return {"low": self.low, "high": self.high} | step | ({"log": True} if self.log else {})


Dimension = Choices | Range


class RandomTrial:
    """A trial that picks uniformly (log-uniformly where asked) and remembers what it picked in `values`."""

    def __init__(self, random: Random) -> None:
        self.values: dict[str, Value] = {}
        self._random = random

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        return self._keep(name, self._random.choice(choices))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number; where log, a rounded log-uniform draw from low - 1/2 to high + 1/2."""
        if log:
            draw = math.exp(self._random.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            return int(self._keep(name, min(max(round(draw), low), high)))
        return int(self._keep(name, self._random.randrange(low, high + 1, step)))

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number; where there is a step, a number of steps above low."""
        if log:
            draw = math.exp(self._random.uniform(math.log(low), math.log(high)))
            return float(self._keep(name, min(max(draw, low), high)))
        if step is not None:
            return float(self._keep(name, low + step * self._random.randint(0, round((high - low) / step))))
        return float(self._keep(name, self._random.uniform(low, high)))

    def _keep(self, name: str, value: Value) -> Value:
        self.values[name] = value
        return value
