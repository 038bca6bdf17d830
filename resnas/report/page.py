"""The page: the question, the answer and the sections in reading order; plotly and stylesheet inlined, nothing loaded
from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from pathlib import Path

import plotly.io
from plotly.offline import get_plotlyjs

from resnas.analysis import FAILED
from resnas.atomic import write_text
from resnas.ranking import Ranking
from resnas.report.answer import QUESTION, answer
from resnas.report.exhibit import Exhibit, Folded, Part, ReportFigure, ReportTable, Section, write_rows
from resnas.report.material import Material
from resnas.report.sections import contents
from resnas.report.stylesheet import SCRIPT, STYLESHEET

BEHIND_THE_ANSWER = ("architectures", "best-against-rival", "basis-", "properties-", "confirmations")
"""How the names of the exhibits begin whose files hold the numbers of the answer."""
CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True, "scrollZoom": False}


def write_report(material: Material, rankings: Sequence[Ranking]) -> Path:
    """Write `report.html` and the CSV files that it names into the results folder; return the path of the page.

    Each file is written whole or not at all, the page last, so that it never names a file that is not there.
    """
    folder = material.study.results_folder
    sections = contents(material, rankings)
    write_rows((exhibit for section in sections for exhibit in section.exhibits), folder)
    path = folder / "report.html"
    write_text(path, html(material, rankings, sections))
    return path


def note(material: Material, rankings: Sequence[Ranking]) -> str:
    """Return the answer and how to read the dashboard, as Markdown."""
    found = answer(material)
    said = "\n".join(f"- {_markdown(sentence)}" for sentence in _verdicts(material, rankings))
    return (
        f"## {_markdown(material.study.name)}\n\n{QUESTION}\n\n**{_markdown(found.finding)}** "
        f"{_markdown(found.certainty)}\n\n{said}\n\n### How to read this\n\n- Our figures stand on the first page, "
        "under the dashboard’s own. The importances that the dashboard draws itself are Optuna’s: they divide 100 % "
        "between the parameters even where all is noise, so rely on the verdicts above.\n- `dilution` alone can be "
        "gamed: a chain that forgets everything has newest share 1. Read it beside `effective_depth` and "
        "`val_loss`.\n- The full account is `report.html` in the study’s results folder.\n"
    )


def _verdicts(material: Material, rankings: Sequence[Ranking]) -> list[str]:
    """Return what the rankings say, and what was confirmed of it."""
    return [
        *(one.sentence() for one in rankings if one.reliable or one.target != FAILED),
        *(f"Put to the test: {one.sentence}" for one in material.confirmations),
    ]


def html(material: Material, rankings: Sequence[Ranking], sections: Sequence[Section] | None = None) -> str:
    """Return the whole page, of its sections where they are made already."""
    name = escape(material.study.name)
    body = contents(material, rankings) if sections is None else sections
    links = "".join(f'<a href="#{one.id}">{one.title}</a>' for one in body)
    inner = "".join(f'<section id="{one.id}"><h2>{one.title}</h2>{"".join(_parts(one))}</section>' for one in body)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{name} – resnas report</title><style>{STYLESHEET}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><main>"
        f'<header id="answer">{_header(material, rankings, body)}<nav aria-label="Contents">{links}</nav></header>'
        f"{inner}"
        f'<footer class="small">Written by resnas from the trials of the study {name}. The numbers behind each figure '
        "and table are in the file that it names, beside this page.</footer>"
        f"</main><script>{SCRIPT}</script></body></html>"
    )


def _header(material: Material, rankings: Sequence[Ranking], sections: Sequence[Section]) -> str:
    found = answer(material)
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in _verdicts(material, rankings))
    said = f"<ul>{sentences}</ul>" if sentences else ""
    behind = [one for section in sections for one in section.exhibits if one.id.startswith(BEHIND_THE_ANSWER)]
    links = ", ".join(_link(one) for one in behind)
    numbers = f'<p class="small">Its numbers: {links}</p>' if links else ""
    written = datetime.now().strftime("%Y-%m-%d %H:%M")
    return (
        f'<p class="kicker">resnas report · {written}</p><h1>{escape(material.study.name)}</h1>'
        f'<p class="question">{QUESTION}</p><div class="answer"><p class="finding">{escape(found.finding)}</p>'
        f"<p>{escape(found.certainty)}</p>{said}{numbers}</div>"
    )


def _link(exhibit: Exhibit) -> str:
    return f'<a href="{exhibit.file}">{exhibit.file}</a>'


def _parts(section: Section) -> Iterator[str]:
    """Yield the parts of a section; narrow figures in a row stand side by side where there is room."""
    for is_narrow, parts in groupby(section.parts, lambda part: isinstance(part, ReportFigure) and part.narrow):
        inner = "".join(map(_part, parts))
        yield f'<div class="pair">{inner}</div>' if is_narrow else inner


def _part(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Folded):
        tables = "".join(map(_shown, part.tables))
        return f"<details><summary>{escape(part.summary)}</summary>{tables}</details>"
    return _shown(part)


def _shown(exhibit: Exhibit) -> str:
    """Return a figure or a table with its title, its caption and the file that holds its numbers."""
    drawn = ""
    if isinstance(exhibit, ReportFigure):
        drawn = plotly.io.to_html(
            exhibit.figure, CONFIG, full_html=False, include_plotlyjs=False, div_id=f"figure-{exhibit.id}"
        )
    elif isinstance(exhibit, ReportTable):
        drawn = f'<div id="table-{exhibit.id}">{exhibit.html}</div>'
    return (
        f"<figure><h3>{escape(exhibit.title)}</h3>{drawn}"
        f"<figcaption>{escape(exhibit.caption)} {_link(exhibit)}</figcaption></figure>"
    )


def _markdown(text: str) -> str:
    """Escape what Markdown or HTML would take as markup."""
    for sign in "\\`*_[]<>#|":
        text = text.replace(sign, f"\\{sign}")
    return text
