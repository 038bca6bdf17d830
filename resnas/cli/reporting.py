"""The command `report`: write the page, or print the numbers behind its tables and figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from resnas.cli.tables import finite, make_console, print_rows
from resnas.errors import InputError
from resnas.problems import unknown
from resnas.search import load_trials
from resnas.study import Study

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from resnas.ranking import Ranking


def write_page(path: Path, overrides: list[str]) -> None:
    """Write the page and its numbers."""
    from resnas.report import Material, write_report

    study = Study.load(path, overrides)
    trials, rankings = _ranked(study)
    material = Material(study, trials)
    written = write_report(material, rankings)
    if without_files := len(material.compared) - len(material.results):
        print(
            f"{without_files} of {len(material.compared)} complete trials have no readable result.json in "
            f"{study.results_folder / 'trials'}: profiles over depth, mixing matrices and curves over training are "
            "drawn without them",
            file=sys.stderr,
        )
    make_console().print(f"Report: {written}", soft_wrap=True)


def print_numbers(path: Path, overrides: list[str], format: str, name: str | None) -> None:
    """Print the rows behind one table or figure; as JSON, behind all of them by name where none is named.

    Raises:
        InputError: there is no such table or figure, or CSV is asked for without one.
    """
    from resnas.report import Material, exhibits

    study = Study.load(path, overrides)
    trials, rankings = _ranked(study)
    found = {one.id: one for one in exhibits(Material(study, trials), rankings)}
    if name is None and format == "json":
        print(json.dumps({one.id: [finite(row) for row in one.rows] for one in found.values()}, indent=1))
        return
    if name is None:
        raise InputError(f"--table: --format csv prints one table; name it: {', '.join(found)}")
    if name not in found:
        raise InputError(f"--table: {unknown(name, found, 'table or figure')}")
    print_rows(found[name].rows, format, found[name].title)


def _ranked(study: Study) -> tuple[list[FrozenTrial], list[Ranking]]:
    """Return the trials of a study and its rankings."""
    from resnas.analysis import analyse_for_report

    trials = load_trials(study)
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("ranking", total=1.0)
        rankings = analyse_for_report(
            study,
            trials,
            progress=lambda step, share: progress.update(task, completed=share, description=f"ranking {step}"),
        )
    return trials, rankings
