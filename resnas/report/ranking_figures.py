"""Figures of a ranking: importance and effect of each property with their intervals, coloured by verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from resnas.ranking import PropertyEffect, Ranking
from resnas.report.material import unit
from resnas.report.style import GREY, VERDICTS, axis, layout

MOST_PROPERTIES = 14
ROW_PX = 30


def importance_figure(ranking: Ranking) -> go.Figure:
    """Draw how much worse held-out predictions get when a property is permuted, with 90 % intervals."""
    effects = ranking.moved_together()[:MOST_PROPERTIES]
    rows = [(one.importance, one.importance_low, one.importance_high) for one in effects]
    return _intervals(ranking, effects, rows, "rise of held-out error", zero_based=True)


def effect_figure(ranking: Ranking) -> go.Figure:
    """Draw what a property does to the target, in the target's units, with 90 % intervals."""
    effects = ranking.moved_together()[:MOST_PROPERTIES]
    rows = [(one.effect, one.effect_low, one.effect_high) for one in effects]
    return _intervals(ranking, effects, rows, f"effect on {ranking.target}", zero_based=False)


def _intervals(
    ranking: Ranking,
    effects: Sequence[PropertyEffect],
    rows: Sequence[tuple[float | None, float | None, float | None]],
    x_title: str,
    *,
    zero_based: bool,
) -> go.Figure:
    """Draw points with intervals, most important on top; a refused ranking is its sentence."""
    if not ranking.reliable:
        return refused_figure(ranking)
    labels = [row_label(effect) for effect in effects]
    figure = go.Figure(layout=layout(110 + ROW_PX * len(effects)))
    for verdict, mark in VERDICTS.items():
        chosen = [i for i, effect in enumerate(effects) if effect.verdict == verdict and rows[i][0] is not None]
        if not chosen:
            continue
        values = [float(rows[i][0] or 0.0) for i in chosen]
        figure.add_scatter(
            x=values,
            y=[labels[i] for i in chosen],
            mode="markers",
            name=verdict,
            marker={"symbol": mark.symbol, "color": mark.colour, "size": 10},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [_gap(rows[i][2], value) for i, value in zip(chosen, values, strict=True)],
                "arrayminus": [_gap(value, rows[i][1]) for i, value in zip(chosen, values, strict=True)],
                "color": mark.colour,
                "thickness": 2,
                "width": 0,
            },
            text=[escape(f"{effects[i].name}: {effects[i].direction}") for i in chosen],
            hovertemplate="%{text}<br>%{x:.3g}<extra></extra>",
        )
    title = f"{x_title} ({unit(ranking.target)})" if unit(ranking.target) else x_title
    figure.update_xaxes(
        axis(escape(title), zeroline=True, zerolinecolor=GREY, rangemode="tozero" if zero_based else "normal")
    )
    order = {"categoryorder": "array", "categoryarray": labels, "autorange": "reversed"}
    figure.update_yaxes(axis("", showgrid=False, ticks="", **order))
    return figure


def _gap(high: float | None, low: float | None) -> float:
    """Return the length of one side of an interval; 0 where it was not measured."""
    return max(0.0, high - low) if high is not None and low is not None else 0.0


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
