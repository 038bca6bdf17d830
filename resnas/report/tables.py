"""The tables of the report as HTML. Every text that comes from a user is escaped here."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from html import escape

from resnas.architecture import Stack
from resnas.comparison import Trained, finite, pareto_front, sign
from resnas.ranking import CONSTANT, SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking
from resnas.report.answer import disagreements
from resnas.report.material import BASELINE_FAMILY, Material
from resnas.report.style import family_marks
from resnas.report.words import MISSING, joined, number
from resnas.results import COUNTED

MOST_ARCHITECTURES = 10
BESIDE = ("val_loss", "dilution", "effective_depth", "late_share")
"""Metrics that stand in the table of architectures beside the objectives."""

DIGITS = {"dilution": 3, "effective_depth": 3, "late_share": 3}
"""Significant digits; all else is written with four."""

Cell = tuple[str, str]
"""HTML of a cell, and its class."""


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


def architectures(material: Material) -> str:
    """Return the table of the best architectures, with the best of the baseline family in any case."""
    best = material.architectures[:MOST_ARCHITECTURES]
    baseline = next((one for one in material.architectures if one.family == BASELINE_FAMILY), None)
    chosen = [*best, *([baseline] if baseline and baseline not in best else [])]
    front = {one.key for one in pareto_front(material.architectures, material.objectives)}
    metrics = list(dict.fromkeys([*material.objectives, *BESIDE]))
    varied = varied_stack(material)
    header = [
        "",
        "architecture",
        *metrics,
        *varied,
        "learning rate",
        "mixing multiplier",
        "parameters",
        "seeds",
        "trials",
        "key",
    ]
    marks = family_marks(material.families)
    rows = []
    for one in chosen:
        rank = number(material.architectures.index(one) + 1)
        options = one.label.removeprefix(one.family).strip(" ()")
        label = named(one.family, marks[one.family].colour, escape(options))
        if one.key in front and len(material.objectives) > 1:
            label += '<br><span class="tag">Pareto front</span>'
        if one.beyond:
            label += f'<br><span class="tag">beyond {escape(joined(list(one.beyond)))}</span>'
        if one is baseline:
            label += '<br><span class="tag">best of the baseline family</span>'
        rows.append(
            [
                (rank, "number"),
                (label, "name"),
                *[_with_spread(one, name) for name in metrics],
                *[figure_of(one.property(name)) for name in varied],
                figure_of(one.property("learning_rate"), 3),
                figure_of(one.property("mixing_lr_multiplier"), 3),
                figure_of(one.property("parameters")),
                figure_of(len(one.rows)),
                words(", ".join(str(row["number"]) for row in one.rows)),
                (f"<code>{escape(one.key)}</code>", ""),
            ]
        )
    return table("Best architectures", [escape(name) for name in header], rows)


def varied_stack(material: Material) -> list[str]:
    """Return the options of the stack that differ between the architectures, which their labels do not tell."""
    return [name for name in Stack.model_fields if len({one.property(name) for one in material.architectures}) > 1]


def _with_spread(one: Trained, name: str) -> Cell:
    spread = one.deviation(name)
    text = number(one.mean(name), DIGITS.get(name, 4)) + (f" ± {number(spread, 2)}" if spread is not None else "")
    return escape(text), "number"


def families(material: Material) -> str:
    """Return the table of families: trials by ending, best and median of the first objective."""
    name, direction = next(iter(material.objectives.items()))
    marks = family_marks(material.families)
    rows = []
    for family in material.families:
        endings = Counter(str(row["ending"]) for row in material.rows if row["family"] == family)
        trained = [one for one in material.architectures if one.family == family]
        means = finite(one.mean(name) for one in trained)
        best = min(means, key=lambda value: sign(direction) * value) if means else None
        label = named(family, marks[family].colour)
        counts = [figure_of(endings[ending]) for ending in COUNTED]
        middle = statistics.median(means) if means else None
        rows.append([(label, "name"), *counts, figure_of(len(trained)), figure_of(best), figure_of(middle)])
    header = ["family", *COUNTED, "architectures", f"best {escape(name)}", f"median {escape(name)}"]
    return table("Families", header, rows)


def effects(ranking: Ranking) -> str:
    """Return the table of all properties of a ranking, the constant ones in one last row."""
    rows = []
    leaders: set[str] = set()
    for effect in ranking.effects:
        if effect.verdict == CONSTANT:
            continue
        leader = next((name for name in effect.correlated_with if name in leaders), None)
        leaders.add(effect.name)
        rows.append(
            [
                (f"<code>{escape(effect.name)}</code>{_partners(effect, leader)}", "property"),
                (f'<span class="verdict {_kind(effect)}">{escape(effect.verdict)}</span>', ""),
                (escape(effect.direction), "direction"),
                _interval(effect.effect, effect.effect_low, effect.effect_high),
                _interval(effect.importance, effect.importance_low, effect.importance_high),
                figure_of(effect.p_value, 2),
                figure_of(effect.n),
            ]
        )
    header = ["property", "verdict", "direction", "effect, 90 % interval", "importance, 90 % interval", "p", "trials"]
    constant = [effect.name for effect in ranking.effects if effect.verdict == CONSTANT]
    note = f'<p class="small">Not varied in this study: {escape(", ".join(constant))}.</p>' if constant else ""
    return table(f"Properties by {ranking.target}", header, rows) + note


def _kind(effect: PropertyEffect) -> str:
    return {SUPPORTED: "supported", SUGGESTIVE: "suggestive"}.get(effect.verdict, "noise")


def _partners(effect: PropertyEffect, leader: str | None) -> str:
    """Name the properties that were moved along: all in the first row of a group, its first one in the others."""
    if not effect.correlated_with:
        return ""
    partners = [leader] if leader else effect.correlated_with
    return f'<br><span class="small">moved together with {escape(", ".join(partners))}</span>'


def _interval(value: float | None, low: float | None, high: float | None) -> Cell:
    if value is None:
        return MISSING, "number"
    if low is None or high is None:
        return number(value, 3), "number"
    return f'{number(value, 3)}<br><span class="small">{number(low, 3)} to {number(high, 3)}</span>', "number"


def gamed(material: Material) -> str:
    """Return the list of architectures that dilution praises and another metric does not."""
    found = disagreements(material)
    if not found:
        return (
            "<p>Here, no architecture is in the best third by dilution and in the worst third by effective_depth or "
            "val_loss.</p>"
        )
    items = "".join(
        f"<li>{escape(one.trained.label)} <code>{escape(one.trained.key)}</code>: {escape(one.sentence)}.</li>"
        for one in found[:MOST_ARCHITECTURES]
    )
    more = len(found) - MOST_ARCHITECTURES
    rest = f"<p>And {more} more.</p>" if more > 0 else ""
    text = "<p>These architectures are in the best third by dilution and in the worst third by another metric:</p>"
    return f"{text}<ul>{items}</ul>{rest}"


def failures(material: Material) -> str:
    """Return the table of reasons for which trials failed or were pruned."""
    reasons = Counter(
        (str(row["ending"]), _cause(str(row["reason"]))) for row in material.rows if row["ending"] != "complete"
    )
    if not reasons:
        return "<p>Every trial that ended was completed.</p>"
    rows = []
    for (ending, reason), count in reasons.most_common():
        numbers = [
            str(row["number"])
            for row in material.rows
            if row["ending"] == ending and _cause(str(row["reason"])) == reason
        ]
        shown = ", ".join(numbers[:8]) + (", …" if len(numbers) > 8 else "")
        rows.append([words(ending), words(reason or "no reason was recorded"), figure_of(count), words(shown)])
    return table("Failures", ["ending", "reason", "trials", "numbers"], rows)


def _cause(reason: str) -> str:
    """Return the first line of a reason, shortened."""
    line = reason.strip().split("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"
