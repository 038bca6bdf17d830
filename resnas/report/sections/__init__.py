"""What the page says, section by section: paragraphs, figures and tables in reading order. `page` lays them out.

The figures are the same for the page and the dashboard; `report --format json` prints the rows behind all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from resnas.analysis import FAILED
from resnas.ranking import Ranking
from resnas.report.exhibit import Exhibit, ReportFigure, Section
from resnas.report.material import Material
from resnas.report.sections import architectures, background, depth, progress, properties, trade_off


def contents(material: Material, rankings: Sequence[Ranking]) -> list[Section]:
    """Return the sections after the answer; what makes trials fail is shown with the failures."""
    wanted = [one for one in rankings if one.target != FAILED]
    failing = next((one for one in rankings if one.target == FAILED), None)
    return [
        architectures.section(material),
        depth.dilution(material),
        depth.mixing(material),
        trade_off.section(material),
        properties.section(material, wanted),
        *properties.confirmations(material),
        progress.search(material),
        progress.failures(material, failing),
        progress.budget(material),
        background.protocol(material),
        background.glossary(material),
    ]


def exhibits(material: Material, rankings: Sequence[Ranking]) -> list[Exhibit]:
    """Return every figure and table of the page."""
    return [exhibit for section in contents(material, rankings) for exhibit in section.exhibits]


def study_figures(material: Material, rankings: Sequence[Ranking]) -> list[ReportFigure]:
    """Return every figure that there is data for, with one that says why where a ranking was refused."""
    drawn = [one for one in exhibits(material, rankings) if isinstance(one, ReportFigure)]
    return [*properties.refused(rankings), *drawn]
