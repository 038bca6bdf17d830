"""How a table, or a list of definitions, is written in HTML. Every text that comes from a user is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from resnas.report.exhibit import ReportTable, Row
from resnas.report.words import MISSING, number

Cell = tuple[str, str]
"""HTML of a cell, and its class."""


Value = Callable[[Row], Cell]
"""How a cell is made of a row."""

Column = tuple[str, Value]
"""What a column is called, and its cells."""


def made_of(
    rows: Sequence[Row], columns: Sequence[Column], *, id: str, title: str, caption: str, most: int | None = None
) -> ReportTable:
    """Return a table of rows, of which at most the first `most` are shown."""
    body = [[cell(row) for _, cell in columns] for row in rows[:most]]
    return ReportTable(id, title, caption, rows, table(title, [escape(name) for name, _ in columns], body))


def text_of(name: str) -> Value:
    """Return a cell of the text in a column of the row."""
    return lambda row: words(MISSING if row[name] is None else row[name])


def code_of(name: str) -> Value:
    """Return a cell of the name or key in a column of the row."""
    return lambda row: (f"<code>{breakable(escape(str(row[name])))}</code>", "")


def number_of(name: str, digits: int = 4) -> Value:
    """Return a cell of the number in a column of the row."""
    return lambda row: figure_of(row[name], digits)


def interval_of(name: str, digits: int = 3) -> Value:
    """Return a cell of the columns `name`, `name_low` and `name_high` of the row."""
    return lambda row: with_interval(row[name], row[f"{name}_low"], row[f"{name}_high"], digits)


def spread_of(name: str, digits: int = 4) -> Value:
    """Return a cell of a mean and its standard deviation `name_sd`, unless that is 0 or of one seed."""

    def cell(row: Row) -> Cell:
        spread = "" if not row[f"{name}_sd"] else f" ± {number(row[f'{name}_sd'], 2)}"
        return escape(number(row[name], digits) + spread), "number"

    return cell


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table that scrolls by itself where it is wider than the page."""
    head = "".join(f'<th scope="col">{breakable(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def breakable(name: str) -> str:
    """Let a long name with underscores break after them."""
    return name.replace("_", "_<wbr>")


def named(family: str, colour: str, rest: str = "") -> str:
    """Return a family with its colour, and what is said of it on a second line."""
    first = f'<span class="first"><span class="dot" style="background:{colour}"></span>{escape(family)}</span>'
    return f'{first}<br><span class="small">{rest}</span>' if rest else first


def _cell(cell: Cell) -> str:
    html, kind = cell
    return f'<td class="{kind}">{html}</td>' if kind else f"<td>{html}</td>"


def words(text: object) -> Cell:
    """Return a cell of text."""
    return escape(str(text)), ""


def figure_of(value: object, digits: int = 4) -> Cell:
    """Return a cell of a number."""
    return escape(number(value, digits)), "number"


def definitions(words: Mapping[str, str]) -> str:
    """Return a list of words and what is said of them."""
    items = (f"<dt>{breakable(escape(word))}</dt><dd>{escape(text)}</dd>" for word, text in words.items())
    return f"<dl>{''.join(items)}</dl>"


def with_interval(value: float | None, low: float | None, high: float | None, digits: int = 3) -> Cell:
    """Return a cell of a number, and its interval on a second line."""
    if value is None:
        return MISSING, "number"
    if low is None or high is None:
        return number(value, digits), "number"
    ends = f"{number(low, digits)} to {number(high, digits)}"
    return f'{number(value, digits)}<br><span class="small">{ends}</span>', "number"
