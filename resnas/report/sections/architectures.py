"""The best architectures, the best against its rival, and the families."""

from __future__ import annotations

from resnas.report import architecture_tables
from resnas.report.exhibit import Part, Section
from resnas.report.material import Material
from resnas.report.words import nothing


def section(material: Material) -> Section:
    """Return the tables of what was trained."""
    parts: list[Part] = [nothing("No trial was completed.")]
    if material.architectures:
        parts = [architecture_tables.best(material), *architecture_tables.against_baseline(material)]
    if material.families:
        parts.append(architecture_tables.families(material))
    return Section("architectures", "Best architectures", parts)
