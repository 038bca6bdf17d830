"""What an executor is: it takes specs, and gives events; every ending of a trial has a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from resnas.errors import ResnasError
from resnas.trial import TrialResult, TrialSpec


@dataclass(frozen=True)
class Limits:
    """Hard limits of one trial; None is no limit."""

    timeout_s: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True)
class Reported:
    """A trial has validated and waits for `Executor.answer`."""

    number: int
    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Ended:
    """A trial has ended, one way or another."""

    number: int
    result: TrialResult


class Aborted(ResnasError):
    """A call was given up, because the search was told to stop."""


class Executor(Protocol):
    """Runs trials somewhere."""

    @property
    def slots(self) -> int:
        """Trials that may run at the same time, at least one; it may change, as machines come and go."""

    def submit(self, number: int, spec: TrialSpec, limits: Limits) -> str:
        """Start a trial; return where it runs (host and process), for people."""

    def events(self, timeout_s: float) -> list[Reported | Ended]:
        """Return what happened, waiting up to `timeout_s` for something to happen."""

    def answer(self, number: int, prune: bool) -> None:
        """Let a trial that reported go on, or ask it to stop."""

    def stop(self) -> None:
        """End all running trials at once, without events."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, computed where trials run. Raises its InputError, or Aborted."""

    def abort(self) -> None:
        """Let a `call` under way, and any to come, raise Aborted; may be called from a signal handler."""
