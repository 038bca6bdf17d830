"""The command `report` and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from resnas.cli.options import DEFAULT_STUDY, Format, Overrides, StudyFile, TableFormat, examples

EXAMPLES = examples(
    "report",
    "report studies/khop.yaml --table families",
    "report --format json > report.json",
    "report --format csv --table architectures > architectures.csv",
)


def report(
    study: StudyFile = DEFAULT_STUDY,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Print the numbers behind one table or figure, by the name of its file in report/."
        ),
    ] = None,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Write report.html, one file that opens offline, from the trials so far, and report/*.csv with its numbers.

    With --format json or csv, or --table, the numbers are printed instead, and nothing is drawn.
    """
    from resnas.cli.reporting import print_numbers, write_page

    given = list(overrides or [])
    if table is None and format is Format.table:
        write_page(study, given)
    else:
        print_numbers(study, given, format.value, table)
