"""The time that one run of a search may take."""

from __future__ import annotations

import math
import time


class TimeLimit:
    """Counts from when it is made; None is no limit."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_s

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; infinite without a limit."""
        return self._limit_s - self.elapsed_s

    def sentence(self, counted: int, total: int) -> str:
        """Say that time is up."""
        return f"the time of this run ({self._limit_s:g} s) is up after {counted} of {total} trials"
