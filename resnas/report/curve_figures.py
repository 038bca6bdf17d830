"""Figures of curves: the best so far over trials and over time, and how early the final order is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from resnas.report.anytime import Moment, RandomSearch
from resnas.report.budget import Agreement
from resnas.report.material import titled
from resnas.report.style import DASHES, FURTHER, GREY, axis, layout, near, translucent

SEARCHED = "chosen by the search"
KINDS = {"random": "drawn at random", "baseline": "baseline", "grid": "of the grid", "replicate": "further seed"}
"""Where a trial came from, in words."""
SYMBOLS = dict(zip(KINDS.values(), ("circle-open", "x-thin-open", "square-open", "diamond-open"), strict=True))
BLUE, ORANGE = "#0072b2", "#e69f00"
BEST, RANDOM_MEAN = "best architecture so far", "random search, mean"
RANDOM_BAND = "random search, middle 90 %"


def best_so_far_figure(
    trials: Sequence[dict[str, Any]], moments: Sequence[Moment], random: RandomSearch | None, objective: str
) -> go.Figure:
    """Draw each complete trial, the best architecture so far, and what random search finds, over trials.

    Args:
        trials: rows with `trials` (how many had ended), `number`, `kind` and the objective.
        moments: the best so far.
        random: None where too few architectures were drawn at random.
        objective: the metric.
    """
    figure = go.Figure(layout=layout())
    if random is not None:
        _add_random(figure, random, random.trials_each)
    for kind in (*SYMBOLS, SEARCHED):
        chosen = [row for row in trials if row["kind"] == kind]
        if chosen:
            figure.add_scatter(
                x=[row["trials"] for row in chosen],
                y=[row[objective] for row in chosen],
                mode="markers",
                name=f"{kind} (n = {len(chosen)})",
                marker={"symbol": SYMBOLS.get(kind, "circle"), "size": 7, "color": GREY, "line": {"width": 1.2}},
                text=[f"trial {row['number']}" for row in chosen],
                hovertemplate=f"%{{text}}: {escape(objective)} %{{y:.4g}}<extra>{escape(kind)}</extra>",
            )
    _add_best(figure, moments, [one.trials for one in moments])
    figure.update_xaxes(axis("trials that had ended", rangemode="tozero"))
    figure.update_yaxes(axis(titled(objective), range=near([row[objective] for row in trials])))
    return figure


def best_over_time_figure(
    moments: Sequence[Moment], random: RandomSearch | None, objective: str, unit_s: float, unit: str
) -> go.Figure:
    """Draw the best architecture so far, and what random search finds, over the training that both took.

    `unit_s` is the length in seconds of the `unit` that the axis counts in.
    """
    figure = go.Figure(layout=layout(340))
    if random is not None:
        _add_random(figure, random, random.train_time_s_each / unit_s)
    _add_best(figure, moments, [one.train_time_s / unit_s for one in moments])
    figure.update_xaxes(axis(f"training, summed over trials ({unit})", rangemode="tozero"))
    figure.update_yaxes(axis(titled(objective)))
    return figure


def _add_best(figure: go.Figure, moments: Sequence[Moment], at: Sequence[float]) -> None:
    figure.add_scatter(
        x=at,
        y=[one.best for one in moments],
        mode="lines",
        name=BEST,
        line={"shape": "hv", "color": BLUE, "width": 2.5},
        text=[escape(f"{one.label}, key {one.key}") for one in moments],
        hovertemplate="%{y:.4g}: %{text}<extra></extra>",
    )


def _add_random(figure: go.Figure, random: RandomSearch, each: float) -> None:
    """Draw the mean and the band of the best of n random draws, each of which costs `each`."""
    at = [one.n * each for one in random.best]
    figure.add_scatter(
        x=[*at, *reversed(at)],
        y=[*[one.high for one in random.best], *reversed([one.low for one in random.best])],
        fill="toself",
        mode="lines",
        fillcolor=translucent(ORANGE, 0.2),
        line={"width": 0},
        hoverinfo="skip",
        name=RANDOM_BAND,
    )
    figure.add_scatter(
        x=at,
        y=[one.mean for one in random.best],
        mode="lines",
        name=RANDOM_MEAN,
        line={"color": ORANGE, "width": 2, "dash": "dash"},
        text=[f"best of {one.n} at random" for one in random.best],
        hovertemplate="%{text}: %{y:.4g}<extra></extra>",
    )


def budget_figure(found: Sequence[Agreement]) -> go.Figure:
    """Draw the rank correlation with the final order against the share of the budget, a line per metric."""
    figure = go.Figure(layout=layout(340))
    names = list(dict.fromkeys(one.metric for one in found))
    for position, name in enumerate(names):
        points = [one for one in found if one.metric == name]
        colour, symbol = (BLUE, "circle") if position == 0 else FURTHER[(position - 1) % len(FURTHER)]
        values = [one.correlation.value or 0.0 for one in points]
        highs = [math.nan if one.correlation.high is None else one.correlation.high for one in points]
        lows = [math.nan if one.correlation.low is None else one.correlation.low for one in points]
        figure.add_scatter(
            x=[one.share for one in points],
            y=values,
            mode="lines+markers",
            name=escape(name),
            line={"color": colour, "width": 2, "dash": DASHES[position % len(DASHES)]},
            marker={"symbol": symbol, "size": 9, "color": colour},
            error_y={
                "array": [high - value for high, value in zip(highs, values, strict=True)],
                "arrayminus": [value - low for low, value in zip(lows, values, strict=True)],
                "symmetric": False,
                "color": colour,
                "thickness": 1.5,
                "width": 4,
            },
            hovertemplate=f"{escape(name)} at %{{x:.0%}}: ρ %{{y:.2f}}<extra></extra>",
        )
    figure.update_xaxes(axis("share of the budget", tickformat=".0%", range=[0, 1.04]))
    figure.update_yaxes(axis("rank correlation with the end"))
    return figure
