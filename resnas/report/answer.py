"""The answer in sentences: the best architecture against the baseline, how sure that is, and where metrics disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from resnas.architecture import Stack
from resnas.comparison import BASELINE_FAMILY, Trained, pareto_front, sign
from resnas.evidence import difference_interval
from resnas.report.material import Material, unit
from resnas.report.words import counted, joined, number
from resnas.results import METRICS, Direction, ending_counts

QUESTION = (
    "On this data, at this size and budget: which residual topology should be used, and which of its properties "
    "actually cut dilution, by how much, and how sure is that?"
)
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
        f"The best of {counted(len(material.architectures), 'architecture')} is {_named(material, best)}, with {name} "
        f"{_value(best, name)}{beyond}"
    )
    other = rival(material)
    if other is None:
        missing = (
            f"no other family than {best.family}" if best.family == BASELINE_FAMILY else f"none of {BASELINE_FAMILY}"
        )
        return Answer(
            f"{finding}; {missing} was completed to compare it with.{_trade_off(material)}", _selection(material)
        )
    whose = "the baseline family" if other.family == BASELINE_FAMILY else "any other family"
    finding += (
        f". The best of {whose}, {_named(material, other)}, has {_value(other, name)}: a difference of "
        f"{number(best.mean(name) - other.mean(name), 3)}{_unit(name)}{_interval(best, other, name)}."
    )
    return Answer(finding + _trade_off(material), f"{_certainty(best, other, name, direction)} {_selection(material)}")


def rival(material: Material) -> Trained | None:
    """Return the best of the baseline family; where that is the best of all, the best of the other families."""
    best = material.architectures[0]
    wants_baseline = best.family != BASELINE_FAMILY
    return next((one for one in material.architectures if (one.family == BASELINE_FAMILY) is wants_baseline), None)


def is_told_apart(best: Trained, other: Trained, name: str) -> bool | None:
    """Whether the 90 % interval over seeds of the difference of two architectures leaves out 0; None where there are
    too few seeds for one."""
    interval = difference_interval(best.values(name), other.values(name))
    return None if interval is None else interval.low * interval.high > 0


def _named(material: Material, one: Trained) -> str:
    """Name an architecture with what its label leaves out: its depth, and what is not usual of its stack."""
    usual = {name: field.default for name, field in Stack.model_fields.items() if name != "depth"}
    values = {name: one.property(name) for name in material.varied_stack if one.property(name) != usual.get(name)}
    known = [f"{name} {number(value)}" for name, value in values.items()]
    known += [f"learning rate {number(rate, 3)}"] if (rate := one.property("learning_rate")) is not None else []
    return f"{one.label}, {', '.join(known)}, key {one.key}" if known else one.label


def _value(one: Trained, name: str) -> str:
    """Write the mean of a metric with its spread over seeds."""
    spread = one.deviation(name)
    seeds = counted(len(one.values(name)), "seed")
    if spread is None:
        return f"{number(one.mean(name))}{_unit(name)} ({seeds})"
    return f"{number(one.mean(name))} ± {number(spread, 2)}{_unit(name)} (mean ± standard deviation of {seeds})"


def _unit(name: str) -> str:
    return f" {unit(name)}" if unit(name) else ""


def _interval(best: Trained, other: Trained, name: str) -> str:
    interval = difference_interval(best.values(name), other.values(name))
    if interval is None:
        return ""
    return f" (90 % interval over seeds {number(interval.low, 3)} to {number(interval.high, 3)}, Welch)"


def _certainty(best: Trained, other: Trained, name: str, direction: Direction) -> str:
    """Say how sure the difference between two architectures is, or why that is not known."""
    interval = difference_interval(best.values(name), other.values(name))
    if interval is None:
        return (
            "How sure: not known. At least one of the two has a single seed, so the difference may be luck; more seeds "
            "per architecture (search.replicates: 3) would tell."
        )
    is_apart = sign(direction) * (interval.high if direction == "minimize" else interval.low) < 0
    verdict = "it is larger than the luck of seeds explains" if is_apart else "it may be no more than the luck of seeds"
    return f"How sure: the interval {'leaves out' if is_apart else 'does not leave out'} 0, so {verdict}."


def _selection(material: Material) -> str:
    """Warn that the best of many is flattered by chance."""
    count = len(material.architectures)
    if count < 2:
        return "One architecture alone says nothing about which is best."
    flattered = f"Being picked as the best of {count} flatters a figure"
    best, name = material.architectures[0], next(iter(material.objectives))
    apart = [is_told_apart(best, other, name) for other in material.architectures[1:]]
    near = apart.count(False)
    if near:
        flattered += f", and the seeds do not tell it apart from {near} of the {count - 1} others"
    return f"{flattered}; train it again with fresh seeds before you rely on it."


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
