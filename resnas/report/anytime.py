"""How the best came about: the best architecture so far over trials and over train time, and what random search finds.

Architectures are judged by their mean over seeds, so each counts only once all its seeds are there: a single lucky seed
is never the best so far. Random search is the study's own random draws, in every order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from resnas.comparison import Trained, sign
from resnas.evidence import BestOf, best_of_random
from resnas.report.material import Material
from resnas.results import Direction

FEWEST_RANDOM = 2


class Moment(NamedTuple):
    """The best so far after so many ended trials and so much training."""

    trials: int
    train_time_s: float
    best: float
    label: str
    key: str


class RandomSearch(NamedTuple):
    """What random draws find, and what each costs: the failed ones are paid for by those that were completed."""

    best: list[BestOf]
    trials_each: float
    train_time_s_each: float


class Choice(NamedTuple):
    """The best of the architectures that the search chose itself, and of as many drawn at random."""

    n: int
    best: float
    random: BestOf | None
    """None where fewer were drawn at random."""


def best_over_time(material: Material, name: str, direction: Direction) -> list[Moment]:
    """Return each moment at which an architecture was complete with all its seeds, in the order of trials."""
    last = {one.rows[-1]["number"]: one for one in _candidates(material, name)}
    moments: list[Moment] = []
    spent_s, best = 0.0, None
    for count, row in enumerate(material.rows, start=1):
        spent_s += material.trial_time_s(row)
        one = last.get(row["number"])
        if one is None:
            continue
        if best is None or sign(direction) * one.mean(name) < sign(direction) * best.mean(name):
            best = one
        moments.append(Moment(count, spent_s, best.mean(name), best.label, best.key))
    return moments


def random_search(material: Material, name: str, direction: Direction) -> RandomSearch | None:
    """Return what random search finds; None with fewer than two architectures that were drawn at random."""
    drawn = _first_origins(material)
    candidates = [one for one in _candidates(material, name) if drawn[one.key] == "random"]
    if len(candidates) < FEWEST_RANDOM:
        return None
    paid = [row for row in material.rows if drawn[str(row["key"])] == "random"]
    return RandomSearch(
        best=best_of_random([one.mean(name) for one in candidates], least=direction == "minimize"),
        trials_each=len(paid) / len(candidates),
        train_time_s_each=math.fsum(material.trial_time_s(row) for row in paid) / len(candidates),
    )


def choice(material: Material, name: str, direction: Direction) -> Choice | None:
    """Return the best that the search chose in the light of earlier trials, against as many random draws; None where
    it chose none."""
    drawn = _first_origins(material)
    not_chosen = ("random", "baseline", "grid", "")
    chosen = [one.mean(name) for one in _candidates(material, name) if drawn[one.key] not in not_chosen]
    random = random_search(material, name, direction)
    if not chosen:
        return None
    drawn_as_often = random.best[len(chosen) - 1] if random and len(chosen) <= len(random.best) else None
    best = min(chosen, key=lambda value: sign(direction) * value)
    return Choice(len(chosen), best, drawn_as_often)


def _candidates(material: Material, name: str) -> list[Trained]:
    """Return the architectures that have the metric and keep to the study's limits."""
    return [one for one in material.architectures if one.values(name) and not one.beyond]


def _first_origins(material: Material) -> dict[str, str]:
    """Return where the first trial of each architecture (by key) came from."""
    origins: dict[str, str] = {}
    for row in material.rows:
        origins.setdefault(str(row["key"]), str(row["origin"]))
    return origins
