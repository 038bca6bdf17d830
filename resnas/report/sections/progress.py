"""How the search went: the best so far against random search, failures, and whether a short budget would have done."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from resnas.comparison import pareto_front
from resnas.ranking import Ranking
from resnas.report import finding_tables
from resnas.report.anytime import Choice, Moment, RandomSearch, best_over_time, choice, random_search
from resnas.report.budget import Agreement, agreements
from resnas.report.curve_figures import (
    BEST,
    KINDS,
    RANDOM_BAND,
    SEARCHED,
    best_over_time_figure,
    best_so_far_figure,
    budget_figure,
)
from resnas.report.exhibit import Part, ReportFigure, Row, Section, identifier
from resnas.report.material import Material
from resnas.report.point_figures import scatter_figure
from resnas.report.sections import one_ranking
from resnas.report.words import counted, joined, nothing, number

TIME_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
EXPLAINED = (
    "The line is the best architecture by its mean over seeds, counted once all its seeds have ended, so that one "
    "lucky seed is never the best. Dashed: the mean of what random search finds, with the middle 90 %, exactly by "
    "order statistics from the study’s own random draws; each is charged what it cost, failures included. Where "
    "all of them are drawn the band closes: trust it up to about half its length. The study began with those very "
    "draws."
)


def search(material: Material) -> Section:
    """Return the best so far per objective, over trials and over time, and the Pareto front where there are several."""
    if not material.architectures:
        return Section("search", "How the search went", [nothing("No trial was completed.")])
    parts: list[Part] = []
    for name, direction in material.objectives.items():
        moments, random = best_over_time(material, name, direction), random_search(material, name, direction)
        chosen = choice(material, name, direction)
        parts += [f"<p>{escape(_against_random(name, chosen, random))}</p>"]
        parts += [_over_trials(material, name, moments, random, chosen), _over_time(name, moments, random)]
    parts += [_front(material)] if len(material.objectives) > 1 else []
    return Section("search", "How the search went", parts)


def _against_random(name: str, chosen: Choice | None, random: RandomSearch | None) -> str:
    """Say whether the search did better than as many random draws."""
    if random is None:
        return f"{name}: too few architectures were drawn at random to say what random search would have found."
    if chosen is None:
        return f"{name}: so far the search has chosen no architecture itself in the light of earlier trials."
    if chosen.random is None:
        return f"{name}: the search chose more architectures itself than were drawn at random to compare with."
    low, high = sorted((chosen.random.low, chosen.random.high))
    return (
        f"{name}: the best of the {counted(chosen.n, 'architecture')} that the search chose itself is "
        f"{number(chosen.best)}; the best of as many random draws is {number(chosen.random.mean)} on average, and from "
        f"{number(low)} to {number(high)} nine times in ten."
    )


def _over_trials(
    material: Material, name: str, moments: list[Moment], random: RandomSearch | None, chosen: Choice | None
) -> ReportFigure:
    trials = _trial_rows(material, name)
    rows: list[Row] = [{"series": row["kind"]} | row for row in trials]
    rows += [{"series": BEST, "trials": one.trials, name: one.best, "key": one.key} for one in moments]
    rows += _random_rows(random, name, "trials", random.trials_each if random else 0.0)
    if chosen is not None:
        rows.append({"series": "best of those chosen by the search", "draws": chosen.n, name: chosen.best})
    caption = (
        "Each point is a complete trial; filled points were chosen by the search in the light of earlier trials, so "
        "they crowd where it looked good; hollow ones were not. Points far away from the others are in the file "
        f"only. {EXPLAINED}"
    )
    figure = best_so_far_figure(trials, moments, random, name)
    return ReportFigure(identifier(f"best-so-far-{name}"), f"Best {name} so far", caption, rows, figure)


def _over_time(name: str, moments: list[Moment], random: RandomSearch | None) -> ReportFigure:
    total_s = moments[-1].train_time_s if moments else 0.0
    unit_s, unit = next(((size, word) for size, word in TIME_UNITS if total_s >= 2 * size), TIME_UNITS[-1])
    rows: list[Row] = [
        {"series": BEST, unit: one.train_time_s / unit_s, "train_time_s": one.train_time_s, name: one.best}
        | {"key": one.key}
        for one in moments
    ]
    rows += _random_rows(random, name, unit, random.train_time_s_each / unit_s if random else 0.0)
    caption = "The same over the training time of all trials together, whatever ran side by side."
    figure = best_over_time_figure(moments, random, name, unit_s, unit)
    return ReportFigure(identifier(f"best-over-time-{name}"), f"Best {name} over time", caption, rows, figure)


def _random_rows(random: RandomSearch | None, name: str, position: str, each: float) -> list[Row]:
    found = random.best if random else []
    return [
        {
            "series": RANDOM_BAND,
            position: one.n * each,
            "draws": one.n,
            name: one.mean,
            "low": one.low,
            "high": one.high,
        }
        for one in found
    ]


def _trial_rows(material: Material, name: str) -> list[Row]:
    """Return the complete trials in the order of their numbers, with how many had ended."""
    compared = {row["number"] for row in material.compared}
    rows = []
    for count, row in enumerate(material.rows, start=1):
        if row["number"] in compared and _is_finite(row.get(name)):
            kind = KINDS.get(str(row["origin"]), SEARCHED)
            rows.append({"trials": count, "number": row["number"], "kind": kind, name: row[name], "key": row["key"]})
    return rows


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _front(material: Material) -> ReportFigure:
    x_name, y_name = list(material.objectives)[:2]
    front = {one.key for one in pareto_front(material.architectures, material.objectives)}
    rows: list[Row] = [
        {"architecture": one.label, "family": one.family, "key": one.key}
        | {name: one.mean(name) for name in material.objectives}
        | {"pareto_front": one.key in front}
        for one in material.architectures
    ]
    figure = scatter_figure(material.architectures, x_name, y_name, material.objectives)
    caption = (
        f"Ringed architectures are beaten by no other one in all of {', '.join(material.objectives)}, by their means "
        "over seeds."
    )
    return ReportFigure("pareto-front", "Pareto front", caption, rows, figure)


def failures(material: Material, ranking: Ranking | None = None) -> Section:
    """Return why trials failed or were pruned, and what makes them fail: by a ranking where there is a reliable one,
    else by the shares of the architectures that failed."""
    parts: list[Part] = [one for one in (finding_tables.failures(material),) if one is not None]
    if ranking is not None:
        parts += ["<h3>What makes architectures fail</h3>", *one_ranking.parts(material, ranking)]
    if ranking is None or not ranking.reliable:
        parts += [one for one in (finding_tables.failed_levels(material),) if one is not None]
    return Section("failures", "Failures", parts or ["<p>Every trial that ended was completed.</p>"])


def budget(material: Material) -> Section:
    """Return how well the order of architectures early in training agrees with the final one."""
    title = "Would a shorter budget do?"
    found = agreements(material)
    if not any(one.share < 1 for one in found):
        return Section("budget", title, [nothing("No value before the end was recorded for enough architectures.")])
    names = list(dict.fromkeys(one.metric for one in found))
    said = "".join(
        f"<li>{escape(_by_budget(name, [one for one in found if one.metric == name]))}</li>" for name in names
    )
    rows: list[Row] = [
        {"metric": one.metric, "step": one.step, "share": one.share, "correlation": one.correlation.value}
        | {"low": one.correlation.low, "high": one.correlation.high, "architectures": one.correlation.n}
        | {"bootstrap_seed": one.seed}
        for one in found
    ]
    caption = (
        "Spearman’s ρ, over architectures, of a metric early in training with the same metric at the end; bars are "
        "90 % intervals (bootstrap over architectures). 1 is the same order. Both values come from the same runs, so "
        "they share the luck of seeds, and the learning rate decays over the whole budget: a run planned for the "
        "shorter budget may do better than this one stopped early. Pruned trials take no part."
    )
    drawn = ReportFigure("budget-correlation", "Early order against final order", caption, rows, budget_figure(found))
    return Section("budget", title, [f"<ul>{said}</ul>", drawn])


def _by_budget(name: str, found: list[Agreement]) -> str:
    early = [one for one in found if one.share < 1]
    if not early:
        return f"{name}: known at the end only."
    parts = []
    for one in early:
        low, high = one.correlation.low, one.correlation.high
        interval = "" if low is None else f" ({number(low, 2)} to {number(high, 2)})"
        parts.append(f"{number(one.correlation.value, 2)}{interval} after {number(100 * one.share, 2)} %")
    return f"{name}: ρ with the final order is {joined(parts)} of the budget."
