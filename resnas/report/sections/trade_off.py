"""Loss against dilution: where lowering dilution did and did not lower the loss, and where dilution misleads."""

from __future__ import annotations

import math
from html import escape

from resnas.comparison import pareto_front
from resnas.report import finding_tables
from resnas.report.association import associations, sentences
from resnas.report.exhibit import Part, ReportFigure, Row, Section
from resnas.report.material import Material
from resnas.report.point_figures import scatter_figure
from resnas.report.words import nothing
from resnas.results import METRICS

WARNING = (
    "<p>Dilution alone can be gamed: a chain that forgets everything but the newest source has newest share 1, and so "
    "no dilution at all.</p>"
)
NONE_GAMED = (
    "<p>Here, no architecture is in the best third by dilution and in the worst third by effective_depth or "
    "val_loss.</p>"
)


def section(material: Material) -> Section:
    """Return the scatter with its Pareto front, the association within families, and who games dilution."""
    name = _metric(material)
    parts: list[Part] = []
    if any(one.values("dilution") for one in material.architectures):
        found = associations(material, name, material.objectives.get(name, METRICS["val_loss"].direction))
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(found, name))
        parts = [_scatter(material, name), f"<p>Did less dilution go with a better {escape(name)}?</p><ul>{said}</ul>"]
        parts += [finding_tables.association(found, name)] if found else []
    gamed = finding_tables.gamed(material)
    parts += [WARNING, gamed or NONE_GAMED] if parts else [nothing("No complete trial has its dilution.")]
    return Section("trade-off", "Loss against dilution", parts)


def _metric(material: Material) -> str:
    return next((name for name in material.objectives if name != "dilution"), "val_loss")


def _scatter(material: Material, name: str) -> ReportFigure:
    objectives = {"dilution": METRICS["dilution"].direction, name: material.objectives.get(name, "minimize")}
    front = {one.key for one in pareto_front(material.architectures, objectives)}
    rows: list[Row] = [
        {"architecture": one.label, "family": one.family, "depth": one.depth, "key": one.key, "seeds": len(one.rows)}
        | {"dilution": one.mean("dilution"), name: one.mean(name), "pareto_front": one.key in front}
        for one in material.architectures
        if math.isfinite(one.mean("dilution")) and math.isfinite(one.mean(name))
    ]
    caption = (
        "Each point is an architecture, the mean over its seeds. Less dilution (left) is only worth having where "
        f"{name} is good as well: ringed architectures, on the dotted line, are beaten by no other in both. Points "
        "far away from the others are in the file only."
    )
    figure = scatter_figure(material.architectures, "dilution", name, objectives)
    return ReportFigure("loss-against-dilution", f"{name} against dilution", caption, rows, figure)
