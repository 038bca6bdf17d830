"""The command `confirm`: rank, plan the pairs, run them under a live view, and say what was confirmed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from resnas.analysis import analyse
from resnas.cli.runs_view import RunsView
from resnas.cli.stopping import INTERRUPTED, stopped_by_signals
from resnas.cli.tables import make_console, print_rows
from resnas.comparison import comparable
from resnas.confirm import Findings, Plan, carry_out, keep, make_plan, metric_rows, remarks, sentence
from resnas.confirm.matching import COSTS
from resnas.errors import InputError, ResnasError
from resnas.executor import Aborted, Limits, inspect_task, make_executor
from resnas.lock import locked
from resnas.passwords import without_passwords
from resnas.problems import unknown
from resnas.ranking import Ranking
from resnas.results import RecordedTrial, table
from resnas.runs import Runner
from resnas.search import load_trials
from resnas.study import Study, known_metrics

FOLDER = "confirmations"
"""Of the runs, in the results folder."""


@dataclass(frozen=True)
class Request:
    """The options of the command."""

    targets: list[str]
    top: int
    claims: list[str]
    seeds: int
    match: str | None
    rates: str
    best: bool


def run_confirm(path: Path, request: Request, overrides: list[str], format: str) -> None:
    """Test claims, print what came out, and keep it in the results folder."""
    study = Study.load(path, overrides)
    targets, factors = _targets(study, request.targets), _factors(request.rates)
    match = next((quantity for quantity in COSTS if quantity == request.match), None)
    progress = Console(stderr=True) if format != "table" else make_console()
    try:
        trials = load_trials(study)
        rankings = _ranked(study, trials, targets)
        plan = make_plan(study, trials, rankings, request.claims, request.top, match, request.best)
        for remark in plan.remarks:
            progress.print(remark, highlight=False, markup=False, soft_wrap=True)
        findings = _carried_out(study, trials, plan, request.seeds, factors, progress)
        _keep(study, findings)
    except (Aborted, KeyboardInterrupt):
        command = without_passwords(shlex.join(["python", "cli.py", *sys.argv[1:]]))
        progress.print(
            f"Stopped. Nothing is lost; go on with: [bold]{escape(command)}[/bold]", highlight=False, soft_wrap=True
        )
        raise typer.Exit(INTERRUPTED) from None
    _print(study, findings, format)


def _targets(study: Study, given: list[str]) -> list[str]:
    known = known_metrics(study.task)
    for name in given:
        if name not in known:
            raise InputError(f"--target: {unknown(name, known, 'metric')}")
    return given or study.ranking.targets[:1]


def _factors(text: str) -> list[float]:
    """Return the factors of `0.5,1,2`. Raises InputError."""
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError:
        factors = []
    if not factors or not all(0 < factor < float("inf") for factor in factors) or len(set(factors)) < len(factors):
        raise InputError(f"--rates: {text!r} must be different factors above 0 with commas between, like 0.5,1,2")
    return factors


def _ranked(study: Study, trials: Sequence[RecordedTrial], targets: list[str]) -> list[Ranking]:
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("ranking", total=1.0)
        return analyse(
            study, trials, targets, lambda step, share: progress.update(task, completed=share, description=step)
        )


def _carried_out(
    study: Study, trials: Sequence[RecordedTrial], plan: Plan, seeds: int, factors: list[float], console: Console
) -> Findings:
    """Run what the plan needs, as the only process that does so for this study."""
    if not plan.pairs:
        return Findings([], plan.remarks, [])
    folder, search = study.results_folder / FOLDER, study.search
    with ExitStack() as open_things:
        open_things.enter_context(locked(folder / "lock", f"another confirm is running for the study {study.name!r}"))
        executor = make_executor(study)
        open_things.callback(executor.stop)
        view = open_things.enter_context(RunsView(study.budget.steps, console))
        open_things.enter_context(stopped_by_signals(executor.abort))
        data_sha256 = _checked_data(study, trials, executor.call(inspect_task, _task(study))["data_sha256"])
        limits = Limits(search.trial_timeout_s, search.memory_limit_gib)
        runner = Runner(executor, folder, limits, data_sha256, view)
        open_things.enter_context(stopped_by_signals(runner.stop))
        console.print(
            f"[bold]{study.name}[/bold]: {len(plan.of('claim'))} claims and {len(plan.of('best'))} comparisons of the "
            f"best, {seeds} seeds each, {executor.slots} runs at a time; results in {folder}",
            highlight=False,
            soft_wrap=True,
        )
        return carry_out(study, plan, seeds, factors, runner, folder)


def _task(study: Study) -> dict[str, object]:
    return {study.task_name: study.task.model_dump(mode="json")}


def _checked_data(study: Study, trials: Sequence[RecordedTrial], found: str) -> str:
    """Return the hash of the data. Raises InputError where the study's trials had other ones."""
    before = comparable(table(trials))[0]["data_sha256"]
    if before != found:
        hashes = f"sha256 {before[:12]}…, now {found[:12]}…"
        raise InputError(f"the study {study.name!r} was run on other data ({hashes}); these could not confirm it")
    return found


def _keep(study: Study, findings: Findings) -> None:
    try:
        keep(findings, study.results_folder)
    except OSError as error:
        raise ResnasError(f"cannot write to {study.results_folder}: {error.strerror or error}") from error


def _print(study: Study, findings: Findings, format: str) -> None:
    """Print one row per pair and metric, and for people one sentence per pair."""
    rows = metric_rows(findings)
    if format != "table":
        print_rows(rows, format)
        return
    console = make_console()
    if rows:
        print_rows(rows, "table", "Paired differences (to − from)")
    for outcome in findings.outcomes:
        console.print(f"[bold]{escape(sentence(outcome))}[/bold]", highlight=False, soft_wrap=True)
        for remark in remarks(outcome):
            console.print(f"  {remark}", style="dim", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Results: {study.results_folder / 'confirm.json'}", highlight=False, soft_wrap=True)
