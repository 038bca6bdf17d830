"""The tables of a ranking: its properties, group by group; what depends on what; Optuna's importances beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from resnas.architecture import PROPERTIES
from resnas.ranking import CONSTANT, LEADERS, NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking
from resnas.report import tables
from resnas.report.exhibit import ReportTable, Row, identifier
from resnas.report.material import Material, called, unit
from resnas.report.words import MISSING, number
from resnas.search.importances import WHY_THEY_DIFFER, importances_beside

RESIDUAL = "architecture.residual"
EMPTY: tables.Cell = ("", "")
HEADER = (
    *("property", "verdict", "direction", "effect, 90 % interval", "importance, 90 % interval"),
    *("second surrogate", "among leaders"),
)
MOST_PARAMETERS = 8


def effects(ranking: Ranking) -> ReportTable:
    """Return the table of every property of a reliable ranking, most important first, the members of a group below
    their first."""
    body = [cells for leader in ranking.moved_together() for cells in _group(ranking, leader)]
    constant = [effect.name for effect in ranking.effects if effect.verdict == CONSTANT]
    note = f'<p class="small">Not varied in this study: {escape(", ".join(constant))}.</p>' if constant else ""
    title = f"Properties by {called(ranking.target)}"
    return ReportTable(
        id=identifier(f"properties-{ranking.target}"),
        title=title,
        caption=(
            "Every property that varied, most important first. Those that were moved together cannot be told apart: "
            "verdict, importance and p are of the group, direction and effect of each member, as if it were the one. "
            "“Second surrogate” is the importance that another model gives, “among leaders” the share of bootstrap "
            "studies in which the property is one of the three most important. A verdict is about importance: a "
            "supported property without a clear direction matters, but not as one rise or fall. Where nothing is "
            "separable from noise no direction is claimed, wherever an interval lies."
        ),
        rows=effect_rows(ranking),
        html=tables.table(title, HEADER, body) + note,
    )


def effect_rows(ranking: Ranking) -> list[Row]:
    """Return one row per property, with all that is known of it."""
    return [{str(name): value for name, value in row.items()} for row in ranking.to_frame().to_dict("records")]


def _group(ranking: Ranking, leader: PropertyEffect) -> Iterator[list[tables.Cell]]:
    """Yield the rows of a property and of those that were moved together with it."""
    tells_leaders = len(ranking.moved_together()) > LEADERS  # among three all are leaders, which says nothing
    members = [one for one in ranking.effects if one.name in leader.correlated_with]
    yield [
        (f"<code>{escape(leader.name)}</code>{_beside(ranking, leader)}", "property"),
        _verdict(leader),
        _direction(leader),
        tables.with_interval(leader.effect, leader.effect_low, leader.effect_high),
        tables.with_interval(leader.importance, leader.importance_low, leader.importance_high),
        tables.figure_of(leader.second_importance, 3),
        tables.figure_of(leader.leader_share if tells_leaders else None, 2),
    ]
    for one in members:
        yield [
            (f'<span class="small">or</span> <code>{escape(one.name)}</code>', "property member"),
            EMPTY,
            _direction(one),
            tables.with_interval(one.effect, one.effect_low, one.effect_high),
            *([EMPTY] * 3),
        ]


def _beside(ranking: Ranking, leader: PropertyEffect) -> str:
    """Say where a property applies, and how many were moved together with it."""
    count = len(leader.correlated_with)
    said = [f"applies to {leader.n} of {ranking.n_architectures}"] if leader.n < ranking.n_architectures else []
    said += [f"moved together with the next {count if count > 1 else 'one'}"] if count else []
    return f'<br><span class="small">{"; ".join(said)}</span>' if said else ""


def _verdict(effect: PropertyEffect) -> tables.Cell:
    p_value = f'<br><span class="small">p = {number(effect.p_value, 2)}</span>' if effect.p_value is not None else ""
    return verdict_badge(effect.verdict) + p_value, "number"


def _direction(effect: PropertyEffect) -> tables.Cell:
    return MISSING if effect.verdict == NOT_SEPARABLE else tables.breakable(escape(effect.direction)), "direction"


def verdict_badge(verdict: str) -> str:
    """Return HTML of a verdict in its colour."""
    kind = {SUPPORTED: "supported", SUGGESTIVE: "suggestive"}.get(verdict, "noise")
    return f'<span class="verdict {kind}">{escape(verdict)}</span>'


def interactions(ranking: Ranking) -> ReportTable | None:
    """Return the table of what depends on what among the leading properties; None where no pair was measured."""
    rows: list[Row] = [
        {"one": one.one, "other": one.other, "size": one.size, "p": one.p_value, "verdict": one.verdict}
        for one in ranking.interactions
    ]
    if not rows:
        return None
    in_units = f" ({unit(ranking.target)})" if unit(ranking.target) else ""
    columns: list[tables.Column] = [
        ("properties", lambda row: (f"<code>{escape(row['one'])}</code> × <code>{escape(row['other'])}</code>", "")),
        ("verdict", lambda row: (verdict_badge(row["verdict"]), "")),
        (f"size{in_units}", tables.number_of("size", 3)),
        ("p", tables.number_of("p", 2)),
    ]
    caption = (
        "How far the effect of one property depends on another, among the most important ones: the standard deviation "
        "over architectures of what their products contribute. p is against shuffled residuals of a model without the "
        "pair, corrected for the number of pairs. Of a group its first property is named."
    )
    title = f"What depends on what, for {called(ranking.target)}"
    return tables.made_of(rows, columns, id=identifier(f"interactions-{ranking.target}"), title=title, caption=caption)


def beside_optuna(material: Material, ranking: Ranking) -> ReportTable | None:
    """Return the table of Optuna's own importances beside our verdicts; None where Optuna gives none."""
    known = {effect.name: effect for effect in ranking.effects}
    rows: list[Row] = []
    for one in importances_beside(material.study, material.trials, ranking.target):
        effect = known.get(property_of(one.parameter) or "")
        rows.append(
            {"parameter": one.parameter, "property": effect.name if effect else None}
            | {"moved_together_with": len(effect.correlated_with) if effect else None}
            | {"verdict": effect.verdict if effect else None, "importance": effect.importance if effect else None}
            | {"importance_low": effect.importance_low if effect else None}
            | {"importance_high": effect.importance_high if effect else None}
            | {"ped_anova": one.ped_anova, "fanova": one.fanova}
        )
    if not rows:
        return None
    columns: list[tables.Column] = [
        ("parameter of the space", lambda row: (_parameter(row), "property")),
        ("our verdict", lambda row: (verdict_badge(row["verdict"]) if row["verdict"] else MISSING, "")),
        ("our importance, 90 % interval", tables.interval_of("importance")),
        ("Optuna’s PED-ANOVA", tables.number_of("ped_anova", 2)),
        ("Optuna’s fANOVA", tables.number_of("fanova", 2)),
    ]
    caption = (
        f"{WHY_THEY_DIFFER}. A dash: no property belongs to the parameter, or Optuna gives no number for it. At most "
        f"{MOST_PARAMETERS} are shown, the file has all {len(rows)}."
    )
    title = f"Optuna’s importances for {called(ranking.target)}, beside ours"
    name = identifier(f"optuna-{ranking.target}")
    return tables.made_of(rows, columns, id=name, title=title, caption=caption, most=MOST_PARAMETERS)


def property_of(parameter: str) -> str | None:
    """Return the first property that a parameter of the space sets by itself; None where there is none."""
    option = parameter.rpartition(".")[2] if parameter.startswith(f"{RESIDUAL}.") else parameter
    return next((name for name, one in PROPERTIES.items() if one.option == option), None)


def _parameter(row: Row) -> str:
    """Name a parameter without what all of them share, and the property that belongs to it."""
    shown = row["parameter"].removeprefix(f"{RESIDUAL}.").removeprefix("architecture.").removeprefix("training.")
    html = f"<code>{tables.breakable(escape(shown))}</code>"
    if row["property"] is None or row["property"] == shown:
        return html
    more = f" + {row['moved_together_with']}" if row["moved_together_with"] else ""
    return f'{html}<br><span class="small">ours: {escape(row["property"])}{more}</span>'
