"""What the page shows: figures and tables, each with the plain rows behind it, and the CSV file that keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resnas.results import write_csv

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = dict[str, Any]
FOLDER = "report"
"""Beside the page; holds one CSV file per figure and table, and nothing else."""


@dataclass(frozen=True)
class Exhibit:
    """Something with a lasting id (valid in HTML), a title, and a caption that says how to read it.

    `rows` hold every number that is shown, and often more.
    """

    id: str
    title: str
    caption: str
    rows: Sequence[Row]

    @property
    def file(self) -> str:
        """The CSV file of the rows, relative to the page."""
        return f"{FOLDER}/{self.id}.csv"


@dataclass(frozen=True)
class ReportFigure(Exhibit):
    """A figure; narrow ones stand side by side where there is room."""

    figure: go.Figure
    narrow: bool = False


@dataclass(frozen=True)
class ReportTable(Exhibit):
    """A table, or a list of definitions, as HTML."""

    html: str


class Folded(NamedTuple):
    """Tables that most readers pass over, shown when their summary is clicked, and in print."""

    summary: str
    tables: Sequence[ReportTable]


Part = str | Exhibit | Folded
"""HTML of paragraphs, an exhibit, or folded tables."""


class Section(NamedTuple):
    """A part of the page, its parts in reading order."""

    id: str
    title: str
    parts: Sequence[Part]

    @property
    def exhibits(self) -> list[Exhibit]:
        """The figures and tables, folded ones included."""
        found: list[Exhibit] = []
        for part in self.parts:
            if isinstance(part, Exhibit):
                found.append(part)
            elif isinstance(part, Folded):
                found += part.tables
        return found


def identifier(text: str) -> str:
    """Return a valid HTML id: letters, digits, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", unescape(text))


def write_rows(exhibits: Iterable[Exhibit], folder: Path) -> None:
    """Write the rows of each exhibit into the folder `report` of `folder`, and delete those of an earlier page."""
    kept = set()
    for one in exhibits:
        write_csv(one.rows, folder / one.file)
        kept.add(folder / one.file)
    for path in (folder / FOLDER).glob("*.csv"):
        if path not in kept:
            path.unlink(missing_ok=True)
