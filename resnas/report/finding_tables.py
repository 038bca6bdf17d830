"""The tables of what was found: dilution and loss within families, claims put to the test, what failed and where."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from html import escape

from resnas.report import tables
from resnas.report.answer import disagreements
from resnas.report.association import Association
from resnas.report.confirmations import BETTER, CONFIRMED, REFUTED, UNDECIDED, WORSE, Confirmation
from resnas.report.endings import failed_shares
from resnas.report.exhibit import ReportTable, Row
from resnas.report.material import Material
from resnas.report.style import family_marks

MOST_LISTED = 10
MOST_LEVELS = 18
OUTCOME_CLASSES = {
    CONFIRMED: "supported",
    BETTER: "supported",
    REFUTED: "suggestive",
    WORSE: "suggestive",
    UNDECIDED: "noise",
}


def association(found: list[Association], name: str) -> ReportTable:
    """Return the table of the association of dilution with a metric, by family and depth."""
    rows: list[Row] = [
        {
            "family": one.family,
            "depth": "all" if one.depth is None else one.depth,
            "architectures": one.correlation.n,
            "correlation": one.correlation.value,
            "correlation_low": one.correlation.low,
            "correlation_high": one.correlation.high,
            "finding": one.finding,
            "bootstrap_seed": one.seed,
        }
        for one in found
    ]
    marks = family_marks(list(dict.fromkeys(one.family for one in found)))
    columns: list[tables.Column] = [
        ("family", lambda row: (tables.named(row["family"], marks[row["family"]].colour), "name")),
        ("depth", tables.text_of("depth")),
        ("architectures", tables.number_of("architectures")),
        ("ρ, 90 % interval", tables.interval_of("correlation", 2)),
        (f"less dilution went with {name} that is", tables.text_of("finding")),
    ]
    caption = (
        f"Spearman’s ρ of dilution and {name} over architectures (means over seeds): above 0, less dilution went with "
        f"less {name}. Intervals are bootstraps over architectures; “all” takes ranks within each depth. Of ten rows "
        "without any association, one looks clear by luck. An association is no cause: learning rates and options vary "
        "as well."
    )
    shown = [row for row in rows if row["depth"] == "all" or row["correlation"] is not None]
    drawn = tables.made_of(shown, columns, id="association", title=f"Dilution and {name}", caption=caption)
    return replace(drawn, rows=rows)


def gamed(material: Material) -> ReportTable | None:
    """Return the table of architectures that dilution praises and another metric does not; None where there is
    none."""
    rows: list[Row] = [
        {
            "architecture": one.trained.label,
            "key": one.trained.key,
            "dilution": one.trained.mean("dilution"),
            "effective_depth": one.trained.mean("effective_depth"),
            "val_loss": one.trained.mean("val_loss"),
            "blamed": one.sentence,
        }
        for one in disagreements(material)
    ]
    if not rows:
        return None
    columns: list[tables.Column] = [
        ("architecture", lambda row: (escape(row["architecture"]), "name")),
        ("key", tables.code_of("key")),
        *[(name, tables.number_of(name, 3)) for name in ("dilution", "effective_depth", "val_loss")],
    ]
    caption = (
        "Architectures in the best third by dilution and in the worst third by effective_depth or val_loss; at most "
        f"{MOST_LISTED} are shown, the file has all {len(rows)}."
    )
    return tables.made_of(
        rows, columns, id="disagreement", title="Where dilution misleads", caption=caption, most=MOST_LISTED
    )


def confirmation(found: list[Confirmation]) -> ReportTable:
    """Return the table of claims that were put to the test, a row per claim and metric."""
    rows: list[Row] = []
    for one in found:
        by_metric: dict[str, dict[str, float | None]] = {one.target: {}} | one.metrics
        for name, values in by_metric.items():
            row: Row = {"claim": one.claim, "property": one.changed, "from": one.before, "to": one.after}
            row |= {"target": one.target, "verdict": one.verdict, "outcome": one.outcome, "metric": name}
            row |= {
                "difference": values.get("difference"),
                "difference_low": values.get("low"),
                "difference_high": values.get("high"),
            }
            rows.append(
                row
                | {key: values.get(key) for key in ("effect_size", "n", "p")}
                | {"sentence": one.sentence, "remarks": "; ".join(one.remarks)}
            )
    columns: list[tables.Column] = [
        ("claim", lambda row: (escape(row["claim"]) if row["metric"] == row["target"] else "", "name")),
        ("verdict", _verdict),
        ("metric", tables.code_of("metric")),
        ("difference, interval", tables.interval_of("difference")),
        ("effect size", tables.number_of("effect_size", 2)),
        ("p", tables.number_of("p", 2)),
        ("pairs of seeds", tables.number_of("n")),
    ]
    caption = (
        "Pairs of runs with fresh seeds: after the change minus before, by metric. The verdict is that of the target."
    )
    return tables.made_of(rows, columns, id="confirmations", title="Claims by metric", caption=caption)


def _verdict(row: Row) -> tables.Cell:
    if row["metric"] != row["target"]:
        return "", ""
    return f'<span class="verdict {OUTCOME_CLASSES[row["outcome"]]}">{escape(row["verdict"])}</span>', ""


def failures(material: Material) -> ReportTable | None:
    """Return the table of reasons for which trials failed or were pruned; None where all were completed."""
    ended = [row for row in material.rows if row["ending"] != "complete"]
    reasons = Counter((str(row["ending"]), _cause(str(row["reason"]))) for row in ended)
    if not reasons:
        return None
    rows: list[Row] = []
    for (ending, reason), count in reasons.most_common():
        numbers = [
            str(row["number"]) for row in ended if row["ending"] == ending and _cause(str(row["reason"])) == reason
        ]
        rows.append(
            {"ending": ending, "reason": reason or "no reason was recorded", "trials": count}
            | {"numbers": ", ".join(numbers), "shown": ", ".join(numbers[:8]) + (", …" if len(numbers) > 8 else "")}
        )
    columns: list[tables.Column] = [
        ("ending", tables.text_of("ending")),
        ("reason", tables.text_of("reason")),
        ("trials", tables.number_of("trials")),
        ("numbers", tables.text_of("shown")),
    ]
    caption = "Trials that were not completed, by ending and reason."
    return tables.made_of(rows, columns, id="failures", title="Reasons", caption=caption)


def failed_levels(material: Material) -> ReportTable | None:
    """Return the table of the share of failed architectures by level of each property; None where none failed."""
    rows: list[Row] = [
        {"property": one.property, "level": one.level, "architectures": one.architectures, "failed": one.failed}
        | {"share": one.share, "share_low": one.interval.low, "share_high": one.interval.high}
        for one in failed_shares(material)
    ]
    if not rows:
        return None
    columns: list[tables.Column] = [
        ("property", tables.code_of("property")),
        ("level", tables.text_of("level")),
        ("architectures", tables.number_of("architectures")),
        ("failed", tables.number_of("failed")),
        ("share failed, 90 % interval", tables.interval_of("share", 2)),
    ]
    caption = (
        "Architectures that failed, by level of each property, those properties first whose levels are told apart "
        "best; numbers with many values are cut into thirds. Intervals are Wilson’s. Properties vary together, so a "
        f"level may stand for another. At most {MOST_LEVELS} rows are shown, the file has all {len(rows)}."
    )
    title = "What makes architectures fail"
    return tables.made_of(rows, columns, id="failed-shares", title=title, caption=caption, most=MOST_LEVELS)


def _cause(reason: str) -> str:
    """Return the first line of a reason, shortened."""
    line = reason.strip().split("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"
