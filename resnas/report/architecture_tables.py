"""The tables of what was trained: the best architectures, the best against the baseline, the families."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from html import escape

from resnas.comparison import BASELINE_FAMILY, finite, pareto_front, sign
from resnas.evidence import difference_interval
from resnas.report import tables
from resnas.report.answer import is_told_apart, rival
from resnas.report.exhibit import ReportTable, Row
from resnas.report.material import Material, unit
from resnas.report.style import family_marks
from resnas.report.words import joined, number
from resnas.results import COUNTED

MOST_ARCHITECTURES = 10
BESIDE = ("val_loss", "dilution", "effective_depth", "late_share")
"""Metrics that stand in the table of architectures beside the objectives."""
COSTS = ("parameters", "flops", "step_time_s")
DIGITS = {"dilution": 3, "effective_depth": 3, "late_share": 3}
"""Significant digits; all else is written with four."""


def best(material: Material) -> ReportTable:
    """Return the table of the best architectures, with the best of the baseline family in any case; the file has
    all."""
    objective, direction = next(iter(material.objectives.items()))
    metrics = list(dict.fromkeys([*material.objectives, *BESIDE]))
    varied = material.varied_stack
    rows = _best_rows(material, metrics, varied)
    baseline = next((row for row in rows if row["family"] == BASELINE_FAMILY), None)
    shown = rows[:MOST_ARCHITECTURES]
    shown += [baseline] if baseline and baseline not in shown else []
    columns: list[tables.Column] = [
        ("", lambda row: (number(row["rank"]), "number")),
        ("architecture", _label(material, baseline)),
        *[(name, tables.spread_of(name, DIGITS.get(name, 4))) for name in metrics],
        *[(name, tables.number_of(name)) for name in varied],
        ("learning rate", tables.number_of("learning_rate", 3)),
        ("mixing multiplier", tables.number_of("mixing_lr_multiplier", 3)),
        ("parameters", tables.number_of("parameters")),
        ("seeds", tables.number_of("seeds")),
        ("trials", lambda row: (escape(row["trials"]), "number")),
        ("key", tables.code_of("key")),
    ]
    caption = (
        f"Sorted by {objective} ({direction}); figures are means over seeds, ± is the standard deviation over seeds. "
        f"Read dilution beside effective_depth and val_loss. The file has all {len(rows)} architectures."
    )
    drawn = tables.made_of(shown, columns, id="architectures", title=f"By {objective}", caption=caption)
    return replace(drawn, rows=rows)


def _best_rows(material: Material, metrics: list[str], varied: list[str]) -> list[Row]:
    front = {one.key for one in pareto_front(material.architectures, material.objectives)}
    rows: list[Row] = []
    for rank, one in enumerate(material.architectures, start=1):
        row: Row = {"rank": rank, "architecture": one.label, "family": one.family, "key": one.key}
        for name in metrics:
            row |= {name: one.mean(name), f"{name}_sd": one.deviation(name)}
        row |= {name: one.property(name) for name in ("depth", *varied, "learning_rate", "mixing_lr_multiplier")}
        row |= {"parameters": one.property("parameters"), "seeds": len(one.rows)}
        row["trials"] = ", ".join(str(trial["number"]) for trial in one.rows)
        row["told_apart_from_best"] = is_told_apart(material.architectures[0], one, next(iter(material.objectives)))
        row["pareto_front"], row["beyond_limits"] = one.key in front, joined(list(one.beyond))
        rows.append(row)
    return rows


def _label(material: Material, baseline: Row | None) -> tables.Value:
    """Return the cell that names an architecture, with what is to be said of it."""
    marks = family_marks(material.families)

    def cell(row: Row) -> tables.Cell:
        options = row["architecture"].removeprefix(row["family"]).strip(" ()")
        label = tables.named(row["family"], marks[row["family"]].colour, escape(options))
        tags = ["Pareto front"] if row["pareto_front"] and len(material.objectives) > 1 else []
        tags += [f"beyond {row['beyond_limits']}"] if row["beyond_limits"] else []
        tags += ["best of the baseline family"] if row is baseline else []
        return label + "".join(f'<br><span class="tag">{escape(tag)}</span>' for tag in tags), "name"

    return cell


def against_baseline(material: Material) -> list[ReportTable]:
    """Return the table of the best architecture against its rival, metric by metric; none where there is no rival."""
    if not material.architectures or (other := rival(material)) is None:
        return []
    first = material.architectures[0]
    rows: list[Row] = []
    for name in dict.fromkeys([*material.objectives, *BESIDE, *COSTS]):
        ours, theirs = first.values(name), other.values(name)
        if not ours or not theirs:
            continue
        interval = difference_interval(ours, theirs)
        rows.append(
            {
                "metric": name,
                "unit": unit(name),
                "best": first.mean(name),
                "best_sd": first.deviation(name),
                "rival": other.mean(name),
                "rival_sd": other.deviation(name),
                "difference": first.mean(name) - other.mean(name),
                "difference_low": interval and interval.low,
                "difference_high": interval and interval.high,
                "seeds_best": len(ours),
                "seeds_rival": len(theirs),
            }
        )
    columns: list[tables.Column] = [
        ("metric", tables.code_of("metric")),
        ("best", tables.spread_of("best")),
        (other.family, tables.spread_of("rival")),
        ("difference, 90 % interval", tables.interval_of("difference")),
        ("unit", tables.text_of("unit")),
    ]
    caption = (
        f"{first.label} ({first.key}) minus {other.label} ({other.key}), by means over {len(first.rows)} and "
        f"{len(other.rows)} seeds; intervals over seeds are Welch’s. Both were picked for their objective among those "
        "of the study, which no interval here accounts for."
    )
    return [tables.made_of(rows, columns, id="best-against-rival", title="The best against its rival", caption=caption)]


def families(material: Material) -> ReportTable:
    """Return the table of families: trials by ending, best and median of the first objective."""
    name, direction = next(iter(material.objectives.items()))
    rows: list[Row] = []
    for family in material.families:
        endings = Counter(str(row["ending"]) for row in material.rows if row["family"] == family)
        means = finite(one.mean(name) for one in material.architectures if one.family == family)
        rows.append(
            {
                "family": family,
                **{ending: endings[ending] for ending in COUNTED},
                "architectures": len(means),
                "best": min(means, key=lambda value: sign(direction) * value) if means else None,
                "median": statistics.median(means) if means else None,
            }
        )
    marks = family_marks(material.families)
    columns: list[tables.Column] = [
        ("family", lambda row: (tables.named(row["family"], marks[row["family"]].colour), "name")),
        *[(ending, tables.number_of(ending)) for ending in COUNTED],
        ("architectures", tables.number_of("architectures")),
        (f"best {name}", tables.number_of("best")),
        (f"median {name}", tables.number_of("median")),
    ]
    caption = (
        "Trials by ending; architectures by their means over seeds. The best of a family that was tried more often had "
        "more chances: compare the medians as well."
    )
    return tables.made_of(rows, columns, id="families", title="Families", caption=caption)
