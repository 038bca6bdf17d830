"""The ranking of properties, and what paired runs with fresh seeds said of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from resnas.ranking import Ranking
from resnas.report import finding_tables
from resnas.report.confirmations import Confirmation
from resnas.report.exhibit import Part, ReportFigure, Section, identifier
from resnas.report.material import Material, titled
from resnas.report.point_figures import Estimate, forest_figure
from resnas.report.sections import one_ranking
from resnas.report.style import OUTCOMES
from resnas.report.words import nothing


def section(material: Material, rankings: Sequence[Ranking]) -> Section:
    """Return the figures and the tables of each ranking, or the reason why there is none."""
    shown: list[Part] = [] if rankings else [nothing("No ranking was made.")]
    for one in rankings:
        shown += [f"<h3>{escape(one.target)}</h3>", *one_ranking.parts(material, one)]
    return Section("properties", "What the properties do", shown)


def refused(rankings: Sequence[Ranking]) -> list[ReportFigure]:
    """Return a figure with the refusal for each ranking that is not reliable: the dashboard has no text beside it."""
    return [one_ranking.importance(one) for one in rankings if not one.reliable]


def confirmations(material: Material) -> list[Section]:
    """Return the claims that were put to the test; nothing where none was."""
    found = material.confirmations
    if not found:
        return []
    said = "".join(f"<li>{_told(one)}</li>" for one in found)
    targets = list(dict.fromkeys(one.target for one in found))
    drawn = [_forest(target, [one for one in found if one.target == target]) for target in targets]
    text = (
        "<p>Put to the test by pairs of runs with fresh seeds. The two of a pair differ in what the claim names, and "
        "else only in what is said.</p>"
    )
    parts: list[Part] = [f"{text}<ul>{said}</ul>", *(one for one in drawn if one is not None)]
    return [Section("confirmations", "What was confirmed", [*parts, finding_tables.confirmation(found)])]


def _told(one: Confirmation) -> str:
    """Return the sentence of a confirmation, and smaller what else is to be known."""
    remarks = f'<br><span class="small">{escape("; ".join(one.remarks))}</span>' if one.remarks else ""
    return escape(one.sentence) + remarks


def _forest(target: str, found: Sequence[Confirmation]) -> ReportFigure | None:
    """Return the differences of a target with their intervals; None where no claim has one."""
    estimates, rows = [], []
    for one in found:
        values = one.metrics.get(target, {})
        difference, low, high = (values.get(name) for name in ("difference", "low", "high"))
        if difference is None or low is None or high is None:
            continue
        estimates.append(Estimate(one.claim, difference, low, high, one.outcome))
        rows.append(
            {"claim": one.claim, "verdict": one.verdict, "target": target, "difference": difference}
            | {"low": low, "high": high, "n": values.get("n")}
        )
    if not estimates:
        return None
    caption = (
        f"Difference of {target} after the change minus before, with its interval over pairs of seeds; colour and "
        "symbol say the verdict. An interval that holds 0 decides nothing by itself."
    )
    figure = forest_figure(estimates, OUTCOMES, f"difference of {titled(target)}")
    return ReportFigure(identifier(f"confirmed-{target}"), f"Claims about {target}", caption, rows, figure)
