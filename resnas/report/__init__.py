"""The report of a study: one self-contained page, the numbers behind it as CSV, and the same figures for the dashboard.
The door to plotly.

`material` reads what was measured; `answer` puts it into sentences; `profiles`, `association`, `anytime`, `budget`,
`endings` and `confirmations` put together the numbers, which tables and figures show; `sections` says what stands
where, and `page` lays it out. Nothing here trains or ranks.
"""

from resnas.report.answer import answer
from resnas.report.exhibit import Exhibit, ReportFigure, ReportTable
from resnas.report.material import Material
from resnas.report.page import note, write_report
from resnas.report.sections import exhibits, study_figures

__all__ = [
    "Exhibit",
    "Material",
    "ReportFigure",
    "ReportTable",
    "answer",
    "exhibits",
    "note",
    "study_figures",
    "write_report",
]
