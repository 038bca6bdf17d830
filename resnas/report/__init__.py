"""The report of a study: one self-contained page, and the same figures for the dashboard. The door to plotly.

`material` reads what was measured; `answer` puts it into sentences, `tables` and `figures` into tables and figures;
`page` lays them out. Nothing here trains or ranks.
"""

from resnas.report.answer import answer
from resnas.report.figures import ReportFigure
from resnas.report.material import Material
from resnas.report.page import note, write_report
from resnas.report.sections import study_figures

__all__ = ["Material", "ReportFigure", "answer", "note", "study_figures", "write_report"]
