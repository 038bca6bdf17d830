"""Rows as a table for people, or as JSON or CSV for programs, on standard output."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 160


def print_rows(rows: Sequence[dict[str, Any]], format: str, title: str = "") -> None:
    """Print rows; columns are the keys in order of first appearance."""
    if format == "json":
        print(json.dumps([finite(row) for row in rows], indent=1))
    elif format == "csv":
        writer = csv.DictWriter(sys.stdout, columns(rows))
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows, title)


def columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return all keys in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def shown(value: Any) -> str:
    """Write a value for a table: numbers with four significant digits, nothing for what does not apply."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)


def clock(seconds: float) -> str:
    """Write a duration as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _print_table(rows: Sequence[dict[str, Any]], title: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    numeric = {name for row in rows for name, value in row.items() if isinstance(value, int | float)}
    for name in columns(rows):
        right = name in numeric
        table.add_column(
            name.replace("_", " "), justify="right" if right else "left", no_wrap=right, min_width=None if right else 12
        )
    for row in rows:
        table.add_row(*(escape(shown(row.get(name))) for name in columns(rows)))
    make_console().print(table)


def make_console() -> Console:
    """Return a console as wide as the terminal; wide enough for tables where there is none."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH_WITHOUT_TERMINAL)


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with nothing in place of what JSON has no word for: NaN and the infinities."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
