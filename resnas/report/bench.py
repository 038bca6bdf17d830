"""The page of a benchmark: the ratio of step times against depth, and all figures in a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from resnas.atomic import write_text
from resnas.report.style import DASHES, axis, family_marks, layout
from resnas.report.stylesheet import STYLESHEET


def ratio_figure(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Return step time over that of `fixed` against depth: a line per topology and size, bars from quartile to
    quartile."""
    shown = [row for row in rows if row["ratio"] is not None and row["implementation"] == "resnas"]
    labels = list(dict.fromkeys(row["residual"] for row in shown))
    sizes = list(dict.fromkeys(_size(row) for row in shown))
    marks = family_marks(labels)
    figure = go.Figure(layout=layout(xaxis=axis("layers"), yaxis=axis("step time over that of fixed")))
    for label in labels:
        mark = family_marks([label.split(" (")[0]])[label.split(" (")[0]] if " (" in label else marks[label]
        for index, size in enumerate(sizes):
            points = sorted(
                (row for row in shown if row["residual"] == label and _size(row) == size), key=lambda row: row["depth"]
            )
            ratios = [row["ratio"] for row in points]
            above = [(row["ratio_q3"] or row["ratio"]) - row["ratio"] for row in points]
            below = [row["ratio"] - (row["ratio_q1"] or row["ratio"]) for row in points]
            figure.add_scatter(
                x=[row["depth"] for row in points],
                y=ratios,
                error_y={"array": above, "arrayminus": below, "symmetric": False},
                name=label if len(sizes) == 1 else f"{label}, {size}",
                mode="lines+markers",
                line={"color": mark.colour, "dash": DASHES[index % len(DASHES)]},
                marker={"symbol": mark.symbol, "size": 8},
            )
    return figure


def write_bench(folder: Path, rows: Sequence[dict[str, Any]], circumstances: dict[str, str]) -> Path:
    """Write `bench.html`, one file that opens offline, and return its path."""
    figure = ratio_figure(rows).to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{'–' if row[name] is None else escape(str(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    facts = ", ".join(f"{escape(name)} {escape(value)}" for name, value in circumstances.items())
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>resnas bench</title><style>{STYLESHEET}</style><script>{get_plotlyjs()}</script></head><body><main>"
        f"<h1>What depth mixing costs</h1><p>{facts}. Ratios are medians over interleaved rounds, with quartiles.</p>"
        f"<section>{figure}</section><section class='scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></section></main></body></html>"
    )
    path = folder / "bench.html"
    write_text(path, page)
    return path


def _size(row: dict[str, Any]) -> str:
    return f"width {row['width']}, {row['tokens']} tokens, {row['threads']} threads"
