"""How figures look: colours and symbols of families and verdicts, and the layout that all figures share.

Colours are those of Okabe and Ito, which people with colour-blindness can tell apart; a symbol says the same again.
Backgrounds are transparent and lines are mid-grey, so that a figure fits a light page, a dark page and the dashboard.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from resnas.ranking import CONSTANT, NOT_SEPARABLE, SUGGESTIVE, SUPPORTED
from resnas.report.confirmations import BETTER, CONFIRMED, REFUTED, UNDECIDED, WORSE


class Mark(NamedTuple):
    """Colour and marker symbol."""

    colour: str
    symbol: str


FAMILIES = {
    "fixed": Mark("#7b818a", "circle"),
    "scalar_learned": Mark("#e69f00", "square"),
    "windowed_depth_attention": Mark("#0072b2", "diamond"),
    "full_depth_attention": Mark("#009e73", "triangle-up"),
}
FURTHER = [Mark("#cc79a7", "cross"), Mark("#d55e00", "x"), Mark("#56b4e9", "star"), Mark("#b8a800", "pentagon")]
"""For users' own topologies, in turn."""

VERDICTS = {
    SUPPORTED: Mark("#0072b2", "circle"),
    SUGGESTIVE: Mark("#d98200", "diamond"),
    NOT_SEPARABLE: Mark("#8b9099", "circle-open"),
    CONSTANT: Mark("#8b9099", "line-ns-open"),
}
OUTCOMES = {
    CONFIRMED: Mark("#0072b2", "circle"),
    BETTER: Mark("#0072b2", "circle"),
    REFUTED: Mark("#d55e00", "x"),
    WORSE: Mark("#d55e00", "x"),
    UNDECIDED: Mark("#8b9099", "circle-open"),
}
DASHES = ("solid", "dash", "dot", "dashdot")
GREY = "#8b9099"
GRID = "rgba(128,134,145,0.22)"
HEIGHT_PX = 400
FEWEST_FOR_RANGE = 8
"""Values, from which on some can be told to lie far away."""
OUTLYING = 3.0
"""Interquartile ranges."""
RANGE_MARGIN = 0.06
"""Of what is shown, on either side."""
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

DIVERGING = [[0.0, "#d55e00"], [0.25, "#f0b98d"], [0.5, "#eeece6"], [0.75, "#7db3d5"], [1.0, "#00619a"]]
"""Orange below, neutral in the middle, blue above."""


def family_marks(families: Sequence[str]) -> dict[str, Mark]:
    """Return the mark of each family; the same for a known family in every study."""
    further = [family for family in families if family not in FAMILIES]
    return {family: FAMILIES.get(family) or FURTHER[further.index(family) % len(FURTHER)] for family in families}


def translucent(colour: str, opacity: float) -> str:
    """Return `#rrggbb` as an rgba colour."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def layout(height: int = HEIGHT_PX, **more: Any) -> dict[str, Any]:
    """Return the layout that all figures share, with more options on top."""
    shared = {
        "template": "none",
        "height": height,
        "font": {"family": FONT, "size": 13, "color": "#70767f"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 12, "r": 12, "t": 12, "b": 12},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.03,
            "yanchor": "bottom",
            "font": {"size": 12},
            "tracegroupgap": 0,
        },
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "hovermode": "closest",
    }
    return shared | more


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title and a faint grid."""
    shared = {
        "title": {"text": title, "standoff": 12, "font": {"size": 13}},
        "gridcolor": GRID,
        "linecolor": GREY,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GRID,
    }
    return shared | more


def whiskers(
    values: Sequence[float], lows: Sequence[float | None], highs: Sequence[float | None], colour: str, cap_px: int = 0
) -> dict[str, Any]:
    """Return the bars of intervals around values; none where an end was not measured."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else high - value for value, high in zip(values, highs, strict=True)],
        "arrayminus": [0.0 if low is None else value - low for value, low in zip(values, lows, strict=True)],
        "color": colour,
        "thickness": 2,
        "width": cap_px,
    }


def near(values: Sequence[float]) -> list[float] | None:
    """Return the range of an axis that shows all values but those three interquartile ranges away from the middle
    half; None for what the axis does by itself."""
    if len(values) < FEWEST_FOR_RANGE:
        return None
    first, _, third = statistics.quantiles(values, n=4)
    low, high = first - OUTLYING * (third - first), third + OUTLYING * (third - first)
    kept = [value for value in values if low <= value <= high]
    margin = RANGE_MARGIN * (max(kept) - min(kept))
    return [min(kept) - margin, max(kept) + margin] if margin else None
