"""Figures whose points are architectures or claims: one metric against another, and intervals of differences."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

from resnas.comparison import Trained, pareto_front
from resnas.report.material import titled
from resnas.report.style import GREY, HEIGHT_PX, Mark, axis, family_marks, layout, near, translucent, whiskers
from resnas.results import Direction

LABEL_CHARACTERS = 50
"""Of a line of a label; longer labels are broken."""
LINE_PX = 18
"""Of a label, and of the space between two."""


class Estimate(NamedTuple):
    """A labelled value with its interval, and how it is marked in the legend."""

    label: str
    value: float
    low: float
    high: float
    kind: str


def scatter_figure(
    architectures: Sequence[Trained], x_name: str, y_name: str, objectives: dict[str, Direction] | None = None
) -> go.Figure:
    """Draw every architecture by the means of two metrics, marked by family; with objectives, the Pareto front is
    ringed."""
    figure = go.Figure(layout=layout(HEIGHT_PX + 20))
    marks = family_marks(list(dict.fromkeys(one.family for one in architectures)))
    for family, mark in marks.items():
        chosen = [one for one in architectures if one.family == family]
        figure.add_scatter(
            x=[one.mean(x_name) for one in chosen],
            y=[one.mean(y_name) for one in chosen],
            mode="markers",
            name=f"{escape(family)} (n = {len(chosen)})",
            marker={"color": translucent(mark.colour, 0.8), "symbol": mark.symbol, "size": 10},
            text=[escape(f"{one.label}, depth {one.depth}, key {one.key}") for one in chosen],
            hovertemplate=f"%{{text}}<br>{x_name} %{{x:.4g}}<br>{y_name} %{{y:.4g}}<extra></extra>",
        )
    if objectives:
        _add_front(figure, pareto_front(architectures, objectives), x_name, y_name)
    for update, name in ((figure.update_xaxes, x_name), (figure.update_yaxes, y_name)):
        known = [one.mean(name) for one in architectures if math.isfinite(one.mean(name))]
        update(axis(titled(name), range=near(known)))
    return figure


def _add_front(figure: go.Figure, front: Sequence[Trained], x_name: str, y_name: str) -> None:
    ordered = sorted(front, key=lambda one: one.mean(x_name))
    figure.add_scatter(
        x=[one.mean(x_name) for one in ordered],
        y=[one.mean(y_name) for one in ordered],
        mode="lines+markers",
        name=f"Pareto front (n = {len(ordered)})",
        line={"color": GREY, "width": 1, "dash": "dot"},
        marker={"symbol": "circle-open", "size": 18, "color": "#d55e00", "line": {"width": 2}},
        hovertemplate="Pareto front<extra></extra>",
    )


def forest_figure(estimates: Sequence[Estimate], marks: dict[str, Mark], x_title: str) -> go.Figure:
    """Draw estimates with their intervals, the first on top, each under its label, and a line at 0.

    `marks` are by kind, in the order of the legend.
    """
    labels = [escape(one.label) for one in estimates]
    wrapped = [textwrap.wrap(one.label, LABEL_CHARACTERS) for one in estimates]
    row_px = LINE_PX * (2 + max(len(lines) for lines in wrapped))
    figure = go.Figure(layout=layout(120 + row_px * len(estimates)))
    for kind, mark in marks.items():
        chosen = [position for position, one in enumerate(estimates) if one.kind == kind]
        if not chosen:
            continue
        figure.add_scatter(
            x=[estimates[i].value for i in chosen],
            y=[labels[i] for i in chosen],
            mode="markers",
            name=kind,
            marker={"symbol": mark.symbol, "color": mark.colour, "size": 11},
            error_x=whiskers(
                [estimates[i].value for i in chosen],
                [estimates[i].low for i in chosen],
                [estimates[i].high for i in chosen],
                mark.colour,
                cap_px=4,
            ),
            hovertemplate="%{x:.3g}<extra>%{y}</extra>",
        )
    for label, lines in zip(labels, wrapped, strict=True):
        text = "<br>".join(escape(line) for line in lines)
        above = {"y": label, "yanchor": "bottom", "yshift": 8, "x": 0, "xref": "paper", "xanchor": "left"}
        figure.add_annotation(text=text, align="left", showarrow=False, font={"size": 12}, **above)
    figure.add_vline(x=0, line={"color": GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(axis(x_title))
    order = {"categoryorder": "array", "categoryarray": labels, "range": [len(labels) - 0.6, -0.95]}
    figure.update_yaxes(axis("", showgrid=False, ticks="", showticklabels=False, **order))
    return figure
