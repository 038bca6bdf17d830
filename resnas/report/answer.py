"""The answer in sentences: the best architecture against the baseline, how sure that is, and where metrics disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from resnas.comparison import Trained, pareto_front, sign
from resnas.report.material import BASELINE_FAMILY, Material, unit
from resnas.report.words import counted, joined, number
from resnas.results import METRICS, Direction, ending_counts

QUESTION = (
    "On this data, at this size and budget: which residual topology should be used, and which of its properties "
    "actually cut dilution, by how much, and how sure is that?"
)
CONFIDENCE = 0.90
FEWEST_FOR_RANKS = 6
"""Architectures; with fewer, thirds of them say nothing."""


class Answer(NamedTuple):
    """What was found, and how sure it is."""

    finding: str
    certainty: str


def answer(material: Material) -> Answer:
    """Say which architecture is best by the first objective, against the best of the baseline family."""
    if not material.architectures:
        return Answer("No trial was completed, so there is no answer yet.", _why_none(material))
    name, direction = next(iter(material.objectives.items()))
    best = material.architectures[0]
    beyond = (
        f" (no architecture keeps to the study's limits; it breaks {joined(list(best.beyond))})" if best.beyond else ""
    )
    finding = (
        f"The best of {counted(len(material.architectures), 'architecture')} is {best.label}, with {name} "
        f"{_value(best, name)}{beyond}"
    )
    rival = _rival(material, best)
    if rival is None:
        missing = (
            f"no other family than {best.family}" if best.family == BASELINE_FAMILY else f"none of {BASELINE_FAMILY}"
        )
        return Answer(
            f"{finding}; {missing} was completed to compare it with.{_trade_off(material)}", _selection(material)
        )
    whose = "the baseline family" if rival.family == BASELINE_FAMILY else "any other family"
    difference = best.mean(name) - rival.mean(name)
    finding += (
        f", against {_value(rival, name)} of the best of {whose}, {rival.label}: a difference of "
        f"{number(difference, 3)}{_unit(name)}."
    )
    return Answer(finding + _trade_off(material), f"{_certainty(best, rival, name, direction)} {_selection(material)}")


def _rival(material: Material, best: Trained) -> Trained | None:
    """Return the best of the baseline family; where that is the best of all, the best of the other families."""
    wants_baseline = best.family != BASELINE_FAMILY
    return next((one for one in material.architectures if (one.family == BASELINE_FAMILY) is wants_baseline), None)


def _value(one: Trained, name: str) -> str:
    """Write the mean of a metric with its spread over seeds."""
    spread = one.deviation(name)
    seeds = counted(len(one.values(name)), "seed")
    if spread is None:
        return f"{number(one.mean(name))}{_unit(name)} ({seeds})"
    return f"{number(one.mean(name))} ± {number(spread, 2)}{_unit(name)} (mean ± standard deviation of {seeds})"


def _unit(name: str) -> str:
    return f" {unit(name)}" if unit(name) else ""


def _certainty(best: Trained, rival: Trained, name: str, direction: Direction) -> str:
    """Say how sure the difference between two architectures is: Welch's interval, or why there is none."""
    ours, theirs = best.values(name), rival.values(name)
    if min(len(ours), len(theirs)) < 2 or np.ptp(ours) + np.ptp(theirs) == 0:
        return (
            "How sure: not known. At least one of the two has a single seed, so the difference may be luck; more seeds "
            "per architecture (search.replicates: 3) would tell."
        )
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    apart = sign(direction) * (interval.high if direction == "minimize" else interval.low) < 0
    verdict = "it is larger than the luck of seeds explains" if apart else "it may be no more than the luck of seeds"
    return (
        f"How sure: the 90 % interval of the difference over seeds is {number(interval.low, 3)} to "
        f"{number(interval.high, 3)} (Welch), so {verdict}."
    )


def _selection(material: Material) -> str:
    """Warn that the best of many is flattered by chance."""
    count = len(material.architectures)
    if count < 2:
        return "One architecture alone says nothing about which is best."
    return (
        f"Being picked as the best of {count} flatters a figure; train it again with fresh seeds before you rely on it."
    )


def _trade_off(material: Material) -> str:
    """With several objectives, say how many architectures no other one beats."""
    if len(material.objectives) < 2:
        return ""
    front = pareto_front(material.architectures, material.objectives)
    return (
        f" No single architecture need be best in {joined(list(material.objectives))}: {len(front)} of "
        f"{len(material.architectures)} are beaten by no other in all of them (the Pareto front)."
    )


def _why_none(material: Material) -> str:
    endings = [f"{counted(n, 'trial')} {ending}" for ending, n in ending_counts(material.trials).items() if n]
    return f"So far: {joined(endings)}." if endings else "No trial was started yet."


class Disagreement(NamedTuple):
    """An architecture that dilution praises and another metric does not."""

    trained: Trained
    sentence: str


def disagreements(material: Material) -> list[Disagreement]:
    """Return the architectures in the best third by dilution, the worst third by `effective_depth` or `val_loss`."""
    known = [one for one in material.architectures if math.isfinite(one.mean("dilution"))]
    if len(known) < FEWEST_FOR_RANKS:
        return []
    third = len(known) // 3
    praised = [one.key for one in _ordered(known, "dilution")[:third]]
    found: list[Disagreement] = []
    others = [name for name in ("effective_depth", "val_loss") if all(math.isfinite(one.mean(name)) for one in known)]
    worst = {name: [one.key for one in _ordered(known, name)[-third:]] for name in others}
    for one in known:
        blamed = [name for name in others if one.key in worst[name]]
        if one.key in praised and blamed:
            values = joined([f"{name} {number(one.mean(name), 3)}" for name in blamed])
            text = f"dilution {number(one.mean('dilution'), 3)} is in the best third, {values} in the worst third"
            found.append(Disagreement(one, text))
    return found


def _ordered(architectures: Sequence[Trained], name: str) -> list[Trained]:
    """Sort by a metric, best first."""
    return sorted(architectures, key=lambda one: sign(METRICS[name].direction) * one.mean(name))
