"""The command `status`: how far a study is, what runs where, what failed and why, the best so far over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnas.cli.showing import print_best
from resnas.cli.tables import clock, make_console, print_rows
from resnas.results import Recorded, ending_counts, table
from resnas.search import Ledger, load_trials
from resnas.study import Study

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SHOWN_BESTS = 8
FAILURES = ("failed", "retried")


def run_status(path: Path, overrides: list[str], format: str) -> None:
    """Print how far a study is."""
    study = Study.load(path, overrides)
    trials = load_trials(study)
    if format != "table":
        print_rows(table(trials), format)
        return
    ledger = Ledger(study)
    ledger.update(trials)
    listed = ", ".join(f"{count} {ending}" for ending, count in ending_counts(trials).items() if count)
    done = f"{ledger.counted} of {study.search.n_trials} trials ({listed})"
    make_console().print(f"[bold]{study.name}[/bold]: {done}{_left(study, ledger)}", soft_wrap=True)
    for title, rows in (
        ("Running", _running(ledger, study.budget.steps)),
        ("Failures", _failures(trials)),
        ("Best so far over time", _bests(ledger, trials)),
    ):
        if rows:
            print_rows(rows, "table", title)
    print_best(study, trials)


def _left(study: Study, ledger: Ledger) -> str:
    """Say how long the rest will take at the present pace; nothing where nothing runs."""
    expected_s, slots = ledger.expected_s(), len(ledger.running)
    if not slots or expected_s is None:
        return ""
    left_s = (study.search.n_trials - ledger.counted) * expected_s / slots
    return f", about {clock(left_s)} left with {slots} at a time"


def _running(ledger: Ledger, steps: int) -> list[dict[str, Any]]:
    now = datetime.now()
    rows = []
    for trial in ledger.running:
        recorded = Recorded.of(trial)
        age = (now - trial.datetime_start).total_seconds() if trial.datetime_start else 0.0
        where = {"where": recorded.where, "step": f"{recorded.step}/{steps}", "for": clock(age)}
        rows.append({"trial": trial.number, **where, "architecture": recorded.label})
    return rows


def _failures(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    failed = [one for trial in trials if (one := Recorded.of(trial)).ending in FAILURES]
    reasons = Counter((one.cause, one.reason) for one in failed)
    again = Counter((one.cause, one.reason) for one in failed if one.ending == "retried")
    return [
        {"trials": count, "run again": again[one], "cause": one[0], "reason": one[1].removeprefix(f"{one[0]}: ")}
        for one, count in reasons.most_common()
    ]


def _bests(ledger: Ledger, trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    start = min((trial.datetime_start for trial in trials if trial.datetime_start), default=None)
    return [
        {
            "after": clock((best.at - start).total_seconds()) if best.at and start else "–",
            "trial": best.number,
            best.metric: best.value,
            "architecture": best.label,
        }
        for best in ledger.bests[-SHOWN_BESTS:]
    ]
