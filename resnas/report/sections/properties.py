"""The ranking of properties, and what paired runs with fresh seeds said of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from resnas.ranking import Ranking
from resnas.report import finding_tables, ranking_figures, tables
from resnas.report.confirmations import Confirmation
from resnas.report.exhibit import Exhibit, ReportFigure, ReportTable, Row, Section, identifier
from resnas.report.material import Material, titled
from resnas.report.point_figures import Estimate, forest_figure
from resnas.report.style import OUTCOMES
from resnas.report.words import nothing


def section(rankings: Sequence[Ranking]) -> Section:
    """Return the figures and the table of each ranking, or the reason why there is none."""
    parts: list[str | Exhibit] = [] if rankings else [nothing("No ranking was made.")]
    for one in rankings:
        parts.append(f"<h3>{escape(one.target)}</h3>")
        if one.reliable:
            parts += [f"<p>{escape(one.sentence())}</p>", *_figures(one), _effects(one)]
        else:
            parts.append(nothing(one.sentence()))
    parts += [_quality(rankings)] if rankings else []
    return Section("properties", "What the properties do", parts)


def refused(rankings: Sequence[Ranking]) -> list[ReportFigure]:
    """Return a figure with the refusal for each ranking that is not reliable: the dashboard has no text beside it."""
    return [_importance(one) for one in rankings if not one.reliable]


def _figures(ranking: Ranking) -> list[ReportFigure]:
    effect = ReportFigure(
        id=identifier(f"effect-{ranking.target}"),
        title=f"Effect on {ranking.target}",
        caption="Estimated change from low to high values, from false to true, or between the extreme levels, with its "
        "90 % interval; colour and symbol say the verdict.",
        rows=_rows(ranking),
        figure=ranking_figures.effect_figure(ranking),
        narrow=True,
    )
    return [_importance(ranking), effect]


def _importance(ranking: Ranking) -> ReportFigure:
    return ReportFigure(
        id=identifier(f"importance-{ranking.target}"),
        title=f"Importance for {ranking.target}",
        caption="How much worse the held-out predictions get when a property is permuted, with its 90 % interval. “+ "
        "2” says that two more properties were moved along, because the trials cannot tell them apart.",
        rows=_rows(ranking),
        figure=ranking_figures.importance_figure(ranking),
        narrow=True,
    )


def _effects(ranking: Ranking) -> ReportTable:
    return ReportTable(
        id=identifier(f"properties-{ranking.target}"),
        title=f"Properties by {ranking.target}",
        caption="Every property that varied, most important first.",
        rows=_rows(ranking),
        html=tables.effects(ranking),
    )


def _rows(ranking: Ranking) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in ranking.to_frame().to_dict("records")]


def _quality(rankings: Sequence[Ranking]) -> ReportTable:
    """Return what each ranking rests on: whatever single values it holds."""
    rows: list[Row] = [
        {name: value for name, value in one.to_dict().items() if not isinstance(value, list | tuple | dict)}
        for one in rankings
    ]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "refusal"]
    columns: list[tables.Column] = [(name.replace("_", " "), _value(name)) for name in names]
    caption = "What each ranking rests on, R² with its 90 % interval, and whether it is reliable."
    return tables.made_of(rows, columns, id="rankings", title="What the rankings rest on", caption=caption)


def _value(name: str) -> tables.Value:
    def cell(row: Row) -> tables.Cell:
        value = row.get(name)
        is_word = value is None or isinstance(value, str | bool)
        return tables.text_of(name)({name: _word(value)}) if is_word else tables.figure_of(value, 3)

    return cell


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


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
    parts: list[str | Exhibit] = [f"{text}<ul>{said}</ul>", *(one for one in drawn if one is not None)]
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
