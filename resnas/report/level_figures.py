"""The figure of partial dependence: the estimated target at each level of the properties that matter, a panel each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from resnas.ranking import SUGGESTIVE, SUPPORTED, LevelMean, PropertyEffect, Ranking
from resnas.report.exhibit import Row
from resnas.report.material import called, titled
from resnas.report.ranking_figures import row_label
from resnas.report.style import GREY, VERDICTS, axis, layout, whiskers

MOST_PANELS = 8
LEVEL_PX = 26
PANEL_PX = 46
"""Between two panels; holds the name of the property."""
AROUND_PX = 150
"""Legend above, axis below."""
BELOW_PX = 54


def drawn_effects(ranking: Ranking) -> list[PropertyEffect]:
    """Return the properties that have a panel: supported and suggestive ones, one for each group moved together."""
    found = [one for one in ranking.moved_together() if one.verdict in (SUPPORTED, SUGGESTIVE) and one.levels]
    return found[:MOST_PANELS]


def level_rows(ranking: Ranking) -> list[Row]:
    """Return a row per level of every property, drawn or not, with the mean that its panel draws as a line."""
    verdicts = {one.name: one.verdict for one in ranking.effects}
    means = {one.name: overall_mean(one.levels) for one in ranking.effects if one.levels}
    return [
        {str(name): value for name, value in row.items()}
        | {"overall_mean": means[row["property"]], "verdict": verdicts[row["property"]]}
        for row in ranking.levels_frame().to_dict("records")
    ]


def overall_mean(levels: Sequence[LevelMean]) -> float:
    """Return the mean over the levels, each weighted by its architectures."""
    known = [level for level in levels if math.isfinite(level.mean)]
    total = sum(level.n for level in known)
    return sum(level.mean * level.n for level in known) / total if total else math.nan


def level_figure(ranking: Ranking) -> go.Figure:
    """Draw the mean at each level with its 90 % interval, panels one below the other on one axis of the target."""
    effects = drawn_effects(ranking)
    counts = [len(one.levels) for one in effects]
    inner_px = LEVEL_PX * sum(counts) + PANEL_PX * (len(effects) - 1)
    figure = make_subplots(
        rows=len(effects),
        shared_xaxes=True,
        row_heights=[count / sum(counts) for count in counts],
        vertical_spacing=PANEL_PX / inner_px if len(effects) > 1 else 0,
    )
    figure.update_layout(layout(inner_px + AROUND_PX, margin={"l": 12, "r": 12, "t": 12, "b": BELOW_PX}))
    figure.update_layout(legend={"y": 1 + PANEL_PX / 2 / inner_px})
    named: set[str] = set()
    for row, effect in enumerate(effects, start=1):
        _add_panel(figure, row, effect, shows_legend=effect.verdict not in named)
        named.add(effect.verdict)
    figure.update_xaxes(axis(""))
    figure.add_annotation(  # no title of the axis, which is cut where long names of levels leave it little room
        **{"text": f"estimated {titled(called(ranking.target))}", "showarrow": False, "x": 1, "xref": "paper"},
        **{"xanchor": "right", "y": 0, "yref": "paper", "yanchor": "top", "yshift": -24},
    )
    return figure


def _add_panel(figure: go.Figure, row: int, effect: PropertyEffect, *, shows_legend: bool) -> None:
    mark = VERDICTS[effect.verdict]
    levels = [level for level in effect.levels if math.isfinite(level.mean)]
    figure.add_scatter(
        x=[level.mean for level in levels],
        y=[escape(level.name) for level in levels],
        mode="markers",
        name=effect.verdict,
        legendgroup=effect.verdict,
        showlegend=shows_legend,
        marker={"symbol": mark.symbol, "color": mark.colour, "size": 9},
        error_x=whiskers(
            [level.mean for level in levels],
            [level.low for level in levels],
            [level.high for level in levels],
            mark.colour,
        ),
        text=[f"n = {level.n}" for level in levels],
        hovertemplate=f"{row_label(effect)} %{{y}}, %{{text}}<br>%{{x:.4g}}<extra></extra>",
        row=row,
        col=1,
    )
    figure.add_vline(x=overall_mean(effect.levels), line={"color": GREY, "width": 1, "dash": "dot"}, row=row, col=1)
    figure.add_annotation(
        **{"x": 0, "xref": "paper", "xanchor": "left", "yref": f"y{row if row > 1 else ''} domain", "y": 1},
        **{"yanchor": "bottom", "yshift": 4, "text": f"<b>{row_label(effect)}</b>", "showarrow": False},
    )
    names = [escape(level.name) for level in levels]
    order = {"type": "category", "categoryorder": "array", "categoryarray": names, "autorange": "reversed"}
    figure.update_yaxes(axis("", showgrid=False, ticks="", **order), row=row, col=1)
