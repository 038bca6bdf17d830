"""Declarations that several commands share: the study file, `--set`, `--format`, and the examples of `--help`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STUDY = Path("studies/quickstart.yaml")


class Format(str, enum.Enum):
    """How a table is printed."""

    table = "table"
    json = "json"
    csv = "csv"


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study file.", show_default=True)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any value of the study or its space, e.g. budget.steps=500; may be repeated.",
    ),
]
TableFormat = Annotated[Format, typer.Option("--format", help="How to print.")]


def examples(*lines: str) -> str:
    """Return the examples that `--help` ends with, one a line."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"python cli.py {line}" for line in lines)])
