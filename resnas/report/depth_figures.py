"""Figures over depth: profiles of families, and depth-mixing matrices. Each is made of plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from resnas.report.profiles import Band, against_even
from resnas.report.style import DASHES, DIVERGING, GREY, HEIGHT_PX, Mark, axis, family_marks, layout, translucent
from resnas.report.words import number

MOST_DRAWN_AT_ONCE = 4
"""Bands; further depths start hidden and are switched on in the legend."""
LEGEND_ROW_PX = 10
FEWEST_FOR_BARS = 3
"""Architectures; the interval of two is so wide that it hides all else, and stands in the file only."""
MOST_DECADES = 3.0
"""Of a logarithmic axis, down from the largest value."""
REFERENCE = "equal-norm PreNorm, 1/l"


def profile_figure(
    bands: Sequence[Band], x_title: str, y_title: str, *, logarithmic: bool = False, reference: bool = False
) -> go.Figure:
    """Draw profiles over depth: a line for the mean with bars for its 90 % interval, a band for the
    middle 90 % of architectures.

    Args:
        bands: one per family and depth.
        x_title: what is numbered along x.
        y_title: what is measured.
        logarithmic: both axes.
        reference: draw 1/l, the newest share of an equal-norm PreNorm stream.
    """
    figure = go.Figure(layout=layout(HEIGHT_PX + LEGEND_ROW_PX * len(bands)))
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
            name=REFERENCE,
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
    high = max(values) * margin
    low = max(min(values) / margin, high / 10**MOST_DECADES)
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
        mode="lines",
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
        error_y=_bars(band, mark.colour),
        name=name,
        legendgroup=group,
        visible=visible,
        hovertemplate=f"{name}<br>%{{x}}: %{{y:.3g}}<extra></extra>",
    )


def _bars(band: Band, colour: str) -> dict[str, object] | None:
    """Return bars from end to end of the interval of the mean."""
    if band.mean_low is None or band.mean_high is None or band.n < FEWEST_FOR_BARS:
        return None
    above = [high - mean for high, mean in zip(band.mean_high, band.mean, strict=True)]
    below = [mean - low for low, mean in zip(band.mean_low, band.mean, strict=True)]
    return {"array": above, "arrayminus": below, "symmetric": False, "color": colour, "thickness": 1.5, "width": 3}


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
