"""Figures over depth and over trials. Each is a plotly figure made of plain data; tables and words are elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import NamedTuple

import plotly.graph_objects as go

from resnas.comparison import Trained, pareto_front, sign
from resnas.report.material import unit
from resnas.report.profiles import Band, against_even
from resnas.report.style import DIVERGING, GREY, HEIGHT_PX, Mark, axis, family_marks, layout, translucent
from resnas.report.words import number
from resnas.results import Direction

SEARCHED = "chosen by the search"
DASHES = ("solid", "dash", "dot", "dashdot")
MOST_DRAWN_AT_ONCE = 4
"""Bands; further depths start hidden and are switched on in the legend."""


class ReportFigure(NamedTuple):
    """A figure with a lasting id (valid in HTML), a title, and a caption that says how to read it."""

    id: str
    title: str
    caption: str
    figure: go.Figure


def profile_figure(
    bands: Sequence[Band], x_title: str, y_title: str, *, logarithmic: bool = False, reference: bool = False
) -> go.Figure:
    """Draw profiles over depth: a line for the mean, a band for the middle 90 % of architectures.

    Args:
        bands: one per family and depth.
        x_title: what is numbered along x.
        y_title: what is measured.
        logarithmic: both axes.
        reference: draw 1/l, the newest share of an equal-norm PreNorm stream.
    """
    figure = go.Figure(layout=layout())
    marks = family_marks(list(dict.fromkeys(band.family for band in bands)))
    depths = sorted({band.depth for band in bands})
    shown = _depth_of_most(bands) if len(bands) > MOST_DRAWN_AT_ONCE else None
    for band in bands:
        dash = DASHES[depths.index(band.depth) % len(DASHES)]
        visible = True if shown in (None, band.depth) else "legendonly"
        _add_band(figure, band, marks[band.family], dash, visible)
    if reference and bands:
        positions = max((band.positions for band in bands), key=len)
        figure.add_scatter(
            x=positions,
            y=[1 / position for position in positions],
            mode="lines",
            line={"color": GREY, "dash": "dot", "width": 2},
            name="equal-norm PreNorm, 1/l",
            hovertemplate="1/%{x} = %{y:.3f}<extra></extra>",
        )
    means = [value for band in bands for value in band.mean if value > 0]
    x_scale = _logarithmic([position for band in bands for position in band.positions], 1.1) if logarithmic else {}
    y_scale = _logarithmic(means, 2.0) if logarithmic else {"rangemode": "tozero"}
    figure.update_xaxes(axis(x_title, **x_scale))
    figure.update_yaxes(axis(y_title, **y_scale))
    return figure


def _logarithmic(values: Sequence[float], margin: float) -> dict[str, object]:
    """Return a logarithmic axis that shows the positive values given, with ticks at 1, 2 and 5 times powers of ten."""
    if not values:
        return {"type": "log"}
    low, high = min(values) / margin, max(values) * margin
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    texts = [f"{tick:g}" for tick in shown]
    return {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": shown, "ticktext": texts}


def _depth_of_most(bands: Sequence[Band]) -> int:
    """Return the depth with most architectures."""
    return max({band.depth for band in bands}, key=lambda depth: sum(band.n for band in bands if band.depth == depth))


def _add_band(figure: go.Figure, band: Band, mark: Mark, dash: str, visible: bool | str) -> None:
    name = f"{escape(band.family)}, depth {band.depth} (n = {band.n})"
    group = f"{band.family} {band.depth}"
    figure.add_scatter(
        x=[*band.positions, *reversed(band.positions)],
        y=[*band.high, *reversed(band.low)],
        fill="toself",
        fillcolor=translucent(mark.colour, 0.14),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=group,
        visible=visible,
    )
    figure.add_scatter(
        x=band.positions,
        y=band.mean,
        mode="lines+markers",
        line={"color": mark.colour, "width": 2, "dash": dash},
        marker={"symbol": mark.symbol, "size": 7, "color": mark.colour},
        name=name,
        legendgroup=group,
        visible=visible,
        hovertemplate=f"{name}<br>%{{x}}: %{{y:.3g}}<extra></extra>",
    )


def matrix_figure(matrix: Sequence[Sequence[float]]) -> go.Figure:
    """Draw who reads from whom: colour is a weight over the even split of its read, blank is a source not read."""
    relative = against_even(matrix)
    columns = len(relative[-1])
    weights = [[*row, *[math.nan] * (columns - len(row))] for row in matrix]
    texts = [["" if math.isnan(weight) else number(weight, 3) for weight in row] for row in weights]
    figure = go.Figure(layout=layout(340))
    figure.add_heatmap(
        z=relative,
        x=list(range(columns)),
        y=list(range(1, len(relative) + 1)),
        text=texts,
        zmin=-2,
        zmax=2,
        colorscale=DIVERGING,
        xgap=1,
        ygap=1,
        colorbar={
            "tickvals": [-2, -1, 0, 1, 2],
            "ticktext": ["≤ ¼ ×", "½ ×", "even", "2 ×", "≥ 4 ×"],
            "thickness": 10,
            "outlinewidth": 0,
            "lenmode": "pixels",
            "len": 220,
            "y": 1,
            "yanchor": "top",
        },
        hovertemplate="read %{y} from source %{x}<br>mean |weight| %{text}<extra></extra>",
    )
    figure.update_xaxes(axis("source (0 is the embedding)", showgrid=False, constrain="domain"))
    figure.update_yaxes(
        axis("read", showgrid=False, autorange="reversed", scaleanchor="x", constrain="domain", constraintoward="top")
    )
    return figure


def scatter_figure(
    architectures: Sequence[Trained], x_name: str, y_name: str, objectives: dict[str, Direction] | None = None
) -> go.Figure:
    """Draw every trial by two metrics, coloured by family; with objectives, the Pareto front is ringed."""
    figure = go.Figure(layout=layout(HEIGHT_PX + 20))
    marks = family_marks(list(dict.fromkeys(one.family for one in architectures)))
    for family, mark in marks.items():
        rows = [row for one in architectures if one.family == family for row in one.rows]
        figure.add_scatter(
            x=[row.get(x_name) for row in rows],
            y=[row.get(y_name) for row in rows],
            mode="markers",
            name=f"{escape(family)} (n = {len(rows)})",
            marker={"color": translucent(mark.colour, 0.8), "symbol": mark.symbol, "size": 10},
            text=[f"trial {row['number']}: {escape(str(row['label']))}" for row in rows],
            hovertemplate=f"%{{text}}<br>{x_name} %{{x:.4g}}<br>{y_name} %{{y:.4g}}<extra></extra>",
        )
    if objectives:
        _add_front(figure, pareto_front(architectures, objectives), x_name, y_name)
    figure.update_xaxes(axis(_titled(x_name)))
    figure.update_yaxes(axis(_titled(y_name)))
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


def best_so_far_figure(rows: Sequence[dict[str, object]], objective: str, direction: Direction) -> go.Figure:
    """Draw each complete trial's objective and the best so far; trials drawn at random are hollow."""
    points = [(int(str(row["number"])), _number(row.get(objective)), str(row["origin"])) for row in rows]
    points = sorted(point for point in points if math.isfinite(point[1]))
    figure = go.Figure(layout=layout())
    kinds = {"random": "drawn at random", "baseline": "baseline", "grid": "of the grid", "replicate": "further seed"}
    symbols = dict(zip(kinds.values(), ("circle-open", "x-thin-open", "square-open", "diamond-open"), strict=True))
    for kind in (*symbols, SEARCHED):
        chosen = [point for point in points if kinds.get(point[2], SEARCHED) == kind]
        if chosen:
            figure.add_scatter(
                x=[point[0] for point in chosen],
                y=[point[1] for point in chosen],
                mode="markers",
                name=f"{kind} (n = {len(chosen)})",
                marker={"symbol": symbols.get(kind, "circle"), "size": 8, "color": GREY, "line": {"width": 1.5}},
                hovertemplate=f"trial %{{x}}: {objective} %{{y:.4g}}<extra>{escape(kind)}</extra>",
            )
    figure.add_scatter(
        x=[point[0] for point in points],
        y=best_so_far([point[1] for point in points], direction),
        mode="lines",
        name="best so far",
        line={"shape": "hv", "color": "#0072b2", "width": 2.5},
        hovertemplate="best up to trial %{x}: %{y:.4g}<extra></extra>",
    )
    figure.update_xaxes(axis("trial"))
    figure.update_yaxes(axis(_titled(objective)))
    return figure


def best_so_far(values: Sequence[float], direction: Direction) -> list[float]:
    """Return the best value up to each position."""
    better = min if sign(direction) == 1 else max
    return list(accumulate(values, better))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _titled(name: str) -> str:
    return f"{escape(name)} ({unit(name)})" if unit(name) else escape(name)
