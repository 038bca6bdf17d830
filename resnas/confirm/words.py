"""Outcomes in words: one sentence each, and the remarks that make it honest."""

from __future__ import annotations

from resnas.confirm.claims import shown
from resnas.confirm.experiment import Outcome
from resnas.confirm.paired import FAMILY_ERROR
from resnas.confirm.verdict import FAILS
from resnas.ranking.result import number

MOVES = {-1: "lowers", 0: "moves", 1: "raises"}


def sentence(outcome: Outcome) -> str:
    """Return the outcome in one sentence: `dilution: depth 12 instead of 4 raises it by 0.2 (…): confirmed.`"""
    pair = outcome.pair
    start = f"{pair.target}: {_what(outcome)}"
    if outcome.verdict.name == FAILS:
        return f"{start}: {outcome.verdict.text}."
    return f"{start} {_size(outcome)}: {outcome.verdict.text}."


def _what(outcome: Outcome) -> str:
    """Say what was changed."""
    pair = outcome.pair
    if pair.change is None or pair.claim is None:
        return f"{pair.name} ({pair.changed.label} instead of {pair.base.label})"
    values = f"{shown(pair.change.after)} instead of {shown(pair.change.before)}"
    return values if pair.claim.subject == "family" else f"{pair.claim.subject} {values}"


def _size(outcome: Outcome) -> str:
    """Say how much the target was moved, with its interval told in the direction that was seen."""
    found = outcome.paired[outcome.pair.target]
    if found.difference is None:
        return "was not compared (no pair of runs has ended)"
    sign = 1 if found.difference >= 0 else -1
    seeds = f"{found.n} {'seed' if found.n == 1 else 'seeds'}"
    moves = f"{MOVES[sign]} it by {number(abs(found.difference), 3)}"
    if found.low is None or found.high is None:
        return f"{moves} ({seeds}, too few for an interval)"
    low, high = sorted((sign * found.low, sign * found.high))
    size = "" if found.effect_size is None else f"; d = {number(sign * found.effect_size)}"
    level = f"{1 - FAMILY_ERROR:.0%}".replace("%", " %")
    return f"{moves} ({level} interval {number(low, 3)} to {number(high, 3)}{size}, {seeds})"


def remarks(outcome: Outcome) -> list[str]:
    """Return what else must be known of an outcome."""
    pair, said = outcome.pair, []
    if pair.change is not None and pair.change.moved_along:
        said.append(f"changes as well: {', '.join(pair.change.moved_along)}")
    if pair.claim is not None and not pair.claim.direction:
        said.append("the ranking claims no direction, so either one confirms that the target moves")
    if pair.claim is not None and pair.claim.together_with:
        said.append(f"the ranking could not tell it apart from {', '.join(pair.claim.together_with)}")
    if pair.claim is not None and pair.claim.depends_on:
        said.append(
            f"by the ranking its effect depends on {', '.join(pair.claim.depends_on)}: what holds on average over the "
            "study need not hold for this architecture"
        )
    if pair.matched is not None:
        equal = pair.matched
        said.append(
            f"{equal.quantity} made equal: {equal.changed:,} for {equal.base:,}, with mlp_ratio {equal.mlp_ratio:.3g}"
        )
    if not pair.is_tuned:
        said.append("the learning rate is what is compared, and was not chosen again")
    for one, label in zip(outcome.arms, (pair.base.label, pair.changed.label), strict=True):
        if one.remark:
            said.append(f"{label}: {one.remark}")
    for number_failed, label in zip(outcome.failed, (pair.base.label, pair.changed.label), strict=True):
        if number_failed:
            said.append(f"{number_failed} of {outcome.seeds} runs of {label} failed; their pairs are left out")
    if outcome.look > 1:
        said.append(f"look number {outcome.look} at this, judged more strictly for that")
    return said
