"""What a paired comparison says about a claim: confirmed, refuted, undecided, or that one arm does not train.

Pure numbers and words; how sure is decided by the interval alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from resnas.confirm.paired import MOST_SEEDS, Paired, more_seeds

CONFIRMED, REFUTED, UNDECIDED, FAILS = "confirmed", "refuted", "undecided", "fails to train"
BETTER, WORSE = "better", "worse"
NEGLIGIBLE_SHARE = 0.25
"""A difference that surely is smaller than this share of the claimed effect is negligible."""
MOST_FAILED = 0.2
"""A larger share of failed runs in one arm is itself the finding."""

Direction = Literal[-1, 0, 1]
"""Claimed: the change lowers the target, moves it one way or the other, or raises it."""


@dataclass(frozen=True)
class Verdict:
    """A verdict, and what is said after it; `more` is the number of further seeds of an undecided one."""

    name: str
    remark: str = ""
    more: int | None = None

    @property
    def text(self) -> str:
        """The verdict with its remark."""
        return f"{self.name}: {self.remark}" if self.remark else self.name


def judge(found: Paired, direction: Direction, effect: float | None, next_error: float) -> Verdict:
    """Return the verdict about a claim.

    Args:
        found: the paired differences of the target.
        direction: claimed.
        effect: claimed, in units of the target; None where no size is claimed.
        next_error: two-sided error of the interval at the next look.
    """
    if found.low is None or found.high is None:
        return Verdict(UNDECIDED, "fewer than two pairs of runs have ended")
    side, negligible = _side(found.low, found.high), NEGLIGIBLE_SHARE * abs(effect or 0.0)
    is_negligible = negligible > 0 and max(-found.low, found.high) <= negligible
    if side and direction in (0, side):
        return Verdict(CONFIRMED, "but less than a quarter of what was claimed" if is_negligible else "")
    if side:
        return Verdict(REFUTED, "the other way round")
    return Verdict(REFUTED, "negligible") if is_negligible else _undecided(found, negligible, next_error)


def judge_best(found: Paired, sign: int, next_error: float) -> Verdict:
    """Return whether the best is better or worse than another architecture.

    Args:
        found: paired differences (best − other) of a metric.
        sign: 1 where less of the metric is better, else −1.
        next_error: two-sided error of the interval at the next look.
    """
    if found.low is None or found.high is None:
        return Verdict(UNDECIDED, "fewer than two pairs of runs have ended")
    side = sign * _side(found.low, found.high)
    return Verdict(BETTER if side < 0 else WORSE) if side else _undecided(found, 0.0, next_error)


def failing(names: Sequence[str], failed: Sequence[int], seeds: int) -> Verdict | None:
    """Return the verdict that an arm does not train, where more than a fifth of its runs failed; else None."""
    shown = [
        f"{number} of {seeds} runs with {name} failed"
        for name, number in zip(names, failed, strict=True)
        if number > MOST_FAILED * seeds
    ]
    return Verdict(FAILS, " and ".join(shown)) if shown else None


def _side(low: float, high: float) -> int:
    """Return on which side of 0 an interval lies: −1, 1, or 0 where it holds 0."""
    return 1 if low > 0 else -1 if high < 0 else 0


def _undecided(found: Paired, negligible: float, next_error: float) -> Verdict:
    more = more_seeds(found, negligible, next_error)
    number = f"more than {MOST_SEEDS}" if more is None else f"about {more}"
    return Verdict(UNDECIDED, f"{number} more {'seed' if more == 1 else 'seeds'}", more)
