"""Figures of a ranking: importance and effect of each property with their intervals, coloured by verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

from resnas.ranking import SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking
from resnas.report.material import called, unit
from resnas.report.style import GREY, VERDICTS, axis, layout, whiskers

MOST_PROPERTIES = 14
ROW_PX = 30
UNCLEAR = {verdict: f"{verdict}, no clear direction" for verdict in (SUPPORTED, SUGGESTIVE)}
"""What an effect is called whose interval holds 0; where nothing is separable from noise, no direction is claimed."""
KINDS = {
    kind: mark
    for verdict, full in VERDICTS.items()
    for kind, mark in (
        (verdict, full),
        *([(UNCLEAR[verdict], full._replace(symbol=f"{full.symbol}-open-dot"))] if verdict in UNCLEAR else []),
    )
}
"""Entries of the legend, in order."""


class Point(NamedTuple):
    """A property with the value that is drawn of it, and its interval."""

    effect: PropertyEffect
    value: float
    low: float | None
    high: float | None
    kind: str
    """Its entry in the legend, from `KINDS`."""


def importance_figure(ranking: Ranking) -> go.Figure:
    """Draw how much worse held-out predictions get when a property is permuted, with 90 % intervals."""
    points = [
        Point(one, one.importance, one.importance_low, one.importance_high, one.verdict)
        for one in ranking.moved_together()[:MOST_PROPERTIES]
        if one.importance is not None
    ]
    return _intervals(ranking, points, "rise of held-out error", zero_based=True)


def effect_figure(ranking: Ranking) -> go.Figure:
    """Draw what a property does to the target, in its units, with 90 % intervals, hollow where these hold 0."""
    points = [
        Point(one, one.effect, one.effect_low, one.effect_high, _kind(one))
        for one in ranking.moved_together()[:MOST_PROPERTIES]
        if one.effect is not None
    ]
    return _intervals(ranking, points, f"effect on {called(ranking.target)}", zero_based=False)


def _kind(effect: PropertyEffect) -> str:
    """Return the verdict, and that it says nothing of a direction where that is so."""
    low, high = effect.effect_low, effect.effect_high
    has_direction = low is None or high is None or low > 0 or high < 0
    return effect.verdict if has_direction or effect.verdict not in UNCLEAR else UNCLEAR[effect.verdict]


def _intervals(ranking: Ranking, points: Sequence[Point], x_title: str, *, zero_based: bool) -> go.Figure:
    """Draw points with intervals, most important on top; a refused ranking is its sentence."""
    if not ranking.reliable:
        return refused_figure(ranking)
    labels = [row_label(point.effect) for point in points]
    figure = go.Figure(layout=layout(110 + ROW_PX * len(points)))
    for kind, mark in KINDS.items():
        chosen = [point for point in points if point.kind == kind]
        if not chosen:
            continue
        values = [point.value for point in chosen]
        figure.add_scatter(
            x=values,
            y=[row_label(point.effect) for point in chosen],
            mode="markers",
            name=kind,
            marker={"symbol": mark.symbol, "color": mark.colour, "size": 10},
            error_x=whiskers(values, [point.low for point in chosen], [point.high for point in chosen], mark.colour),
            text=[escape(f"{point.effect.name}: {point.effect.direction}") for point in chosen],
            hovertemplate="%{text}<br>%{x:.3g}<extra></extra>",
        )
    title = f"{x_title} ({unit(ranking.target)})" if unit(ranking.target) else x_title
    figure.update_xaxes(
        axis(escape(title), zeroline=True, zerolinecolor=GREY, rangemode="tozero" if zero_based else "normal")
    )
    order = {"categoryorder": "array", "categoryarray": labels, "autorange": "reversed"}
    figure.update_yaxes(axis("", showgrid=False, ticks="", **order))
    return figure


def row_label(effect: PropertyEffect) -> str:
    """Return the name of a property, and how many others were moved along with it."""
    more = f" + {len(effect.correlated_with)}" if effect.correlated_with else ""
    return escape(effect.name) + more


def refused_figure(ranking: Ranking) -> go.Figure:
    """Return a figure that only says why there is no reliable ranking."""
    figure = go.Figure(layout=layout(220))
    text = "<br>".join(escape(line) for line in textwrap.wrap(ranking.sentence(), 60))
    figure.add_annotation(text=text, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font={"size": 14})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure
