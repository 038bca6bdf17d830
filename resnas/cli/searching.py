"""The command `search`: run the coordinator under a live view, then rank, report, and say what was found."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from resnas.cli.live import LiveView
from resnas.cli.showing import print_best, print_rankings
from resnas.cli.tables import make_console
from resnas.executor import make_executor
from resnas.search import Coordinator, load_trials
from resnas.study import Study

INTERRUPTED = 130
STANDARD_ERROR = 2
STOPPING = "Stopping: running trials are ended and will run again next time …\n"


def run_search(path: Path, overrides: list[str]) -> None:
    """Search, then analyse and report."""
    study = Study.load(path, overrides)
    console = make_console()
    executor = make_executor(study)
    with LiveView(study.budget.steps) as view:
        coordinator = Coordinator(study, executor, view)
        trials = f"{study.search.n_trials} trials of {study.budget.steps} steps on {study.task_name}"
        console.print(
            f"[bold]{study.name}[/bold]: {trials}, {executor.slots} at a time; results in {study.results_folder}"
        )
        with _stopped_by_signals(coordinator):
            finished = coordinator.run()
    if not finished:
        console.print(f"Stopped. Nothing is lost; go on with: [bold]python cli.py search {path}[/bold]")
        raise typer.Exit(INTERRUPTED)
    _conclude(study, console)


def _conclude(study: Study, console: Console) -> None:
    """Rank the properties, write the report, say what was found."""
    from resnas.analysis import analyse
    from resnas.report import Material, answer, write_report

    trials = load_trials(study)
    print_best(study, trials)
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task("ranking")
        rankings = analyse(
            study,
            trials,
            progress=lambda step, share: progress.update(task, description=f"ranking {share:.0%}: {step}"),
        )
        progress.update(task, description="report")
        report = write_report(study, trials, rankings)
    found = answer(Material(study, trials))
    console.print(f"[bold]{escape(found.finding)}[/bold] {escape(found.certainty)}", highlight=False)
    print_rankings(rankings)
    console.print(
        f"Report: [bold]{report}[/bold]   Dashboard: [bold]python cli.py dashboard {study.path}[/bold]", soft_wrap=True
    )


@contextlib.contextmanager
def _stopped_by_signals(coordinator: Coordinator) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the search cleanly, a Ctrl-C after it at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        coordinator.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(STANDARD_ERROR, STOPPING.encode())  # not print: a handler must not import, and rich may

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
