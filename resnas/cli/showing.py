"""The commands that show what a study has found: `analyze`, `dashboard`; and its tables."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnas.cli.tables import make_console, print_rows
from resnas.comparison import comparable, pareto_front, trained
from resnas.results import RecordedTrial, table
from resnas.search import existing_study
from resnas.study import Study

SHOWN_ARCHITECTURES = 8


def run_dashboard(path: Path, host: str, port: int, overrides: list[str]) -> None:
    """Put figures and answer on the dashboard, and serve it until Ctrl-C."""
    from resnas.analysis import analyse_for_report
    from resnas.dashboard import publish, serve
    from resnas.report import Material, note, study_figures

    study = Study.load(path, overrides)
    optuna_study = existing_study(study)
    trials = optuna_study.get_trials(deepcopy=False)
    console = make_console()
    with console.status("ranking and drawing"):
        rankings = analyse_for_report(study, trials)
        material = Material(study, trials)
        figures = study_figures(material, rankings)
        publish(study, optuna_study, {one.id: one.figure for one in figures}, note(material, rankings))
    with contextlib.suppress(KeyboardInterrupt):
        serve(study, host, port, lambda url: console.print(f"Dashboard: {url}   (Ctrl-C ends it)", soft_wrap=True))


def print_best(study: Study, trials: Sequence[RecordedTrial]) -> None:
    """Print the best architectures, one row each, over their seeds (the Pareto front where there are several
    objectives), without those beyond the study's limits."""
    architectures = trained(comparable(table(trials)), study.directions, study.limits)
    within = [one for one in architectures if not one.beyond]
    title = "Best architectures"
    if len(study.objectives) > 1:
        within = pareto_front(architectures, study.directions)
        title = f"Pareto front of {', '.join(study.objectives)}"
    if len(within) < len(architectures) and study.limits:
        beyond = sum(bool(one.beyond) for one in architectures)
        title += f" ({beyond} of {len(architectures)} trained ones are beyond a limit)"
    names = list(dict.fromkeys([*study.objectives, *study.limits, "dilution", "effective_depth", "late_share"]))
    shown = within[:SHOWN_ARCHITECTURES]
    spread = [name for name in names if any(one.deviation(name) is not None for one in shown)]
    rows: list[dict[str, Any]] = []
    for one in shown:
        row: dict[str, Any] = {"architecture": one.label, "key": one.key, "seeds": len(one.rows)}
        for name in names:
            row[name] = one.mean(name)
            if name in spread and name in study.objectives:
                row[f"± {name}"] = one.deviation(name)
        rows.append(row | {name: one.property(name) for name in ("learning_rate", "mixing_lr_multiplier")})
    if rows:
        print_rows(rows, "table", title)
    elif architectures:
        make_console().print(f"No architecture keeps to the limits: {', '.join(architectures[0].beyond)} broken.")
