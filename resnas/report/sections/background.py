"""How the study was made, and what the words mean."""

from __future__ import annotations

from resnas.architecture import PROPERTIES
from resnas.report import tables
from resnas.report.exhibit import Folded, ReportTable, Row, Section
from resnas.report.material import Material
from resnas.report.provenance import facts
from resnas.report.words import GLOSSARY
from resnas.results import METRICS, property_names

FOREIGN = "of a topology of your own, which says what it means"


def protocol(material: Material) -> Section:
    """Return what a reader needs to judge or repeat the study."""
    found = facts(material)
    rows: list[Row] = [{"what": heading, "how": text} for heading, text in found.items()]
    table = ReportTable("protocol", "Protocol and environment", "", rows, tables.definitions(found))
    return Section("provenance", "How this was obtained", [table])


def glossary(material: Material) -> Section:
    """Return the words, the metrics, and the properties with the options that set them."""
    known = Folded("Every metric and property", [_metrics(), _properties(material)])
    return Section("glossary", "Glossary", [tables.definitions(GLOSSARY), known])


def _metrics() -> ReportTable:
    rows: list[Row] = [
        {"metric": name, "meaning": one.meaning, "unit": one.unit, "better": _better(one.direction)}
        for name, one in METRICS.items()
    ]
    columns: list[tables.Column] = [
        ("metric", tables.code_of("metric")),
        *[(name, tables.text_of(name)) for name in ("meaning", "unit", "better")],
    ]
    return tables.made_of(rows, columns, id="metrics", title="Metrics", caption="What is measured of each trial.")


def _better(direction: str) -> str:
    return {"minimize": "less", "maximize": "more"}[direction]


def _properties(material: Material) -> ReportTable:
    rows: list[Row] = []
    for name in property_names(material.trials):
        known = PROPERTIES.get(name)
        meaning, unit, option = (known.meaning, known.unit, known.option) if known else (FOREIGN, "", "")
        rows.append({"property": name, "meaning": meaning, "unit": unit, "set_by": option})
    columns: list[tables.Column] = [
        ("property", tables.code_of("property")),
        ("meaning", tables.text_of("meaning")),
        ("unit", tables.text_of("unit")),
        ("set by (YAML)", tables.text_of("set_by")),
    ]
    caption = "What an architecture is described by, and the options of a search space that set it."
    return tables.made_of(rows, columns, id="glossary-properties", title="Properties", caption=caption)
