"""The command `search`: run the coordinator under a live view, then rank, report, and say what was found."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from resnas.atomic import write_text
from resnas.cli.analyzing import print_rankings
from resnas.cli.search_view import SearchView
from resnas.cli.showing import print_best
from resnas.cli.stopping import INTERRUPTED, stopped_by_signals
from resnas.cli.tables import make_console
from resnas.errors import InputError
from resnas.executor import make_executor
from resnas.passwords import without_passwords
from resnas.search import Coordinator, load_trials
from resnas.study import Study


def run_search(path: Path, overrides: list[str], new_study: str | None = None, extension: bool = False) -> None:
    """Search, then analyse and report."""
    console = make_console()
    study = Study.load(path, overrides)
    if new_study is not None:
        study = Study.load(_copied(path, new_study), overrides)
        console.print(f"A study of its own, on which later commands go on: [bold]{study.path}[/bold]", soft_wrap=True)
    executor = make_executor(study)
    with SearchView(study.budget.steps, console) as view:
        coordinator = Coordinator(study, executor, view, extension)
        trials = f"{study.search.n_trials} trials of {study.budget.steps} steps on {study.task_name}"
        console.print(
            f"[bold]{study.name}[/bold]: {trials}, {executor.slots} at a time; results in {study.results_folder}"
        )
        with stopped_by_signals(coordinator.stop):
            finished = coordinator.run()
    if not finished:
        command = _same_command(study, overrides)
        console.print(f"Stopped. Nothing is lost; go on with: [bold]{escape(command)}[/bold]", soft_wrap=True)
        raise typer.Exit(INTERRUPTED)
    if coordinator.remark:
        console.print(f"{coordinator.remark[0].upper()}{coordinator.remark[1:]}.", highlight=False)
    _conclude(study, console)


def _copied(path: Path, name: str) -> Path:
    """Copy a study file to another name. Raises InputError where that is taken or no name."""
    stem = name.removesuffix(".yaml")
    if not re.fullmatch(r"\w[\w.-]*", stem):
        raise InputError(f"--new-study: {name!r} is no name of a file beside {path}; use letters, digits, _, - and .")
    copy = path.with_name(f"{stem}.yaml")
    if copy.exists():
        raise InputError(f"--new-study: {copy} exists already; search it, or give another name")
    write_text(copy, path.read_text(encoding="utf-8"))
    return copy


def _same_command(study: Study, overrides: list[str]) -> str:
    """Return the command line that goes on with a study."""
    options = [part for override in overrides for part in ("--set", override)]
    return without_passwords(shlex.join(["python", "cli.py", "search", str(study.path), *options]))


def _conclude(study: Study, console: Console) -> None:
    """Rank the properties, write the report, say what was found."""
    from resnas.analysis import analyse_for_report
    from resnas.report import Material, answer, write_report

    trials = load_trials(study)
    print_best(study, trials)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task("ranking")
        rankings = analyse_for_report(
            study,
            trials,
            progress=lambda step, share: progress.update(task, description=f"ranking {share:.0%}: {step}"),
        )
        progress.update(task, description="report")
        material = Material(study, trials)
        report = write_report(material, rankings)
    found = answer(material)
    console.print(f"[bold]{escape(found.finding)}[/bold] {escape(found.certainty)}", highlight=False)
    print_rankings(rankings)
    console.print(
        f"Report: [bold]{report}[/bold]   Dashboard: [bold]python cli.py dashboard {study.path}[/bold]", soft_wrap=True
    )
