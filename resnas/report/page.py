"""The page: sections in reading order, plotly and stylesheet inlined, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path

import plotly.io
from optuna.trial import FrozenTrial
from plotly.offline import get_plotlyjs

from resnas.atomic import write_text
from resnas.ranking import Ranking
from resnas.report import provenance, sections, tables
from resnas.report.answer import QUESTION, answer
from resnas.report.figures import ReportFigure
from resnas.report.material import Material
from resnas.report.stylesheet import SCRIPT, STYLESHEET
from resnas.report.words import GLOSSARY
from resnas.results import METRICS
from resnas.study import Study

CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True, "scrollZoom": False}


def write_report(study: Study, trials: Sequence[FrozenTrial], rankings: Sequence[Ranking]) -> Path:
    """Write `report.html` into the results folder, whole or not at all, and return its path."""
    path = study.results_folder / "report.html"
    write_text(path, html(Material(study, trials), rankings))
    return path


def note(study: Study, trials: Sequence[FrozenTrial], rankings: Sequence[Ranking]) -> str:
    """Return the answer and how to read the dashboard, as Markdown."""
    found = answer(Material(study, trials))
    ranked = "\n".join(f"- {_markdown(ranking.sentence())}" for ranking in rankings)
    return (
        f"## {_markdown(study.name)}\n\n{QUESTION}\n\n**{_markdown(found.finding)}** "
        f"{_markdown(found.certainty)}\n\n{ranked}\n\n### How to read this\n\n- Our figures stand on the first page, "
        "under the dashboard’s own. The importances that the dashboard draws itself are Optuna’s: they divide 100 % "
        "between the parameters even where all is noise, so rely on the verdicts above.\n- `dilution` alone can be "
        "gamed: a chain that forgets everything has newest share 1. Read it beside `effective_depth` and "
        "`val_loss`.\n- The full account is `report.html` in the study’s results folder.\n"
    )


def html(material: Material, rankings: Sequence[Ranking]) -> str:
    """Return the whole page."""
    name = escape(material.study.name)
    parts = [
        ("answer", "", _header(material, rankings)),
        ("architectures", "Best architectures", _architectures(material)),
        ("families", "Families", _families(material)),
        ("properties", "What the properties do", _properties(rankings)),
        ("depth", "Dilution over depth", _over_depth(material)),
        ("mixing", "Who reads from whom", _mixing(material)),
        ("disagreement", "Where dilution misleads", _disagreement(material)),
        (
            "search",
            "How the search went",
            _figures(sections.over_trials(material)) or _nothing("No trial was completed."),
        ),
        ("failures", "Failures", tables.failures(material)),
        ("provenance", "How this was obtained", _definitions(provenance.facts(material))),
        ("glossary", "Glossary", _definitions(_glossary())),
    ]
    header, *body = parts
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in body)
    inner = "".join(f'<section id="{key}"><h2>{title}</h2>{content}</section>' for key, title, content in body)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{name} – resnas report</title><style>{STYLESHEET}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><main>"
        f'<header id="answer">{header[2]}<nav aria-label="Contents">{links}</nav></header>{inner}'
        f'<footer class="small">Written by resnas from the trials of the study {name}.</footer>'
        f"</main><script>{SCRIPT}</script></body></html>"
    )


def _header(material: Material, rankings: Sequence[Ranking]) -> str:
    found = answer(material)
    sentences = "".join(f"<li>{escape(ranking.sentence())}</li>" for ranking in rankings)
    written = datetime.now().strftime("%Y-%m-%d %H:%M")
    return (
        f'<p class="kicker">resnas report · {written}</p><h1>{escape(material.study.name)}</h1>'
        f'<p class="question">{QUESTION}</p><div class="answer"><p class="finding">{escape(found.finding)}</p>'
        f"<p>{escape(found.certainty)}</p>{f'<ul>{sentences}</ul>' if sentences else ''}</div>"
    )


def _architectures(material: Material) -> str:
    if not material.architectures:
        return _nothing("No trial was completed.")
    objective, direction = next(iter(material.objectives.items()))
    return (
        f"<p>Sorted by {escape(objective)} ({direction}); figures are means over seeds, ± is the standard deviation "
        f"over seeds. Read dilution beside effective_depth and val_loss.</p>{tables.architectures(material)}"
    )


def _families(material: Material) -> str:
    if not material.families:
        return _nothing("No trial has ended.")
    text = "<p>The best of a family that was tried more often had more chances: compare the medians as well.</p>"
    return text + tables.families(material)


def _properties(rankings: Sequence[Ranking]) -> str:
    if not rankings:
        return _nothing("No ranking was made.")
    parts = []
    for ranking in rankings:
        parts.append(f"<h3>{escape(ranking.target)}</h3>")
        if ranking.reliable:
            parts.append(f"<p>{escape(ranking.sentence())}</p>{_figures(sections.ranking([ranking]), 'pair')}")
            parts.append(tables.effects(ranking))
        else:
            parts.append(f'<p class="refusal">{escape(ranking.sentence())}</p>')
    return "".join(parts)


def _over_depth(material: Material) -> str:
    return _figures(sections.over_depth(material)) or _nothing("No complete trial has its measurements over depth.")


def _mixing(material: Material) -> str:
    drawn = _figures(sections.who_reads_whom(material), "pair")
    if not drawn:
        return _nothing("No complete trial has its depth-mixing matrix.")
    return (
        "<p>The depth-mixing matrix of the best architecture of each family, after training: a row is a read, a "
        "column is a source. Colour is the mean size of a weight over the even split of its read, so neutral means "
        "“no preference”, blue “read more than others”, orange “read less”; a blank cell is not read. The sign of a "
        "weight is not shown.</p>" + drawn
    )


def _disagreement(material: Material) -> str:
    return (
        "<p>Dilution alone can be gamed: a chain that forgets everything but the newest source has newest share 1, "
        "and so no "
        "dilution at all.</p>" + tables.gamed(material) + _figures(sections.loss_against_dilution(material))
    )


def _figures(drawn: Sequence[ReportFigure], kind: str = "") -> str:
    """Return figures with title and caption; those of kind `pair` stand side by side where there is room."""
    inner = "".join(
        f"<figure><h3>{escape(one.title)}</h3>"
        + plotly.io.to_html(one.figure, CONFIG, full_html=False, include_plotlyjs=False, div_id=f"figure-{one.id}")
        + f"<figcaption>{escape(one.caption)}</figcaption></figure>"
        for one in drawn
    )
    return f'<div class="{kind}">{inner}</div>' if kind and inner else inner


def _definitions(words: dict[str, str]) -> str:
    return (
        "<dl>"
        + "".join(f"<dt>{tables.breakable(escape(word))}</dt><dd>{escape(text)}</dd>" for word, text in words.items())
        + "</dl>"
    )


def _glossary() -> dict[str, str]:
    metrics = {
        name: f"{metric.meaning[0].upper()}{metric.meaning[1:]} ({metric.unit}; {metric.direction})."
        for name, metric in METRICS.items()
    }
    return {**GLOSSARY, **metrics}


def _nothing(sentence: str) -> str:
    return f'<p class="refusal">{sentence}</p>'


def _markdown(text: str) -> str:
    """Escape what Markdown or HTML would take as markup."""
    for sign in "\\`*_[]<>#|":
        text = text.replace(sign, f"\\{sign}")
    return text
