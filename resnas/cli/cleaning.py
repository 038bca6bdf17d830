"""The command `clean`: shows what of a study's results nobody needs, and deletes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from resnas.cli.tables import make_console, print_rows
from resnas.errors import ResnasError
from resnas.results import Recorded
from resnas.search import load_trials
from resnas.search.claim import Claim, claimed
from resnas.search.cleaning import Needless, delete, find_needless
from resnas.search.opening import existing_study, make_results_folder
from resnas.study import Study

SHOWN_ROWS = 40


def run_clean(path: Path, dry_run: bool, keep: int | None, overrides: list[str], format: str) -> None:
    """Print what may be deleted, which was deleted unless this is a dry run."""
    study = Study.load(path, overrides)
    existing_study(study)  # where there is none, no folder is made
    make_results_folder(study)
    failure: ResnasError | None = None
    # several coordinators may share the study: while it is this one's turn, none of them starts a trial
    with claimed(study) as claim, claim.exclusive():
        found = _find(study, claim, keep)
        try:
            if not dry_run and found:
                _delete(study, claim, found)
        except ResnasError as error:
            failure = error
    if format == "table":  # after the turn: who reads a long table must not keep the others waiting
        _print_table(study, found)
    else:
        print_rows([_row(study, one) for one in found], format)
    if failure is not None:
        raise failure
    if format == "table" and found:
        verb = "would be" if dry_run else "were"
        total_bytes = sum(one.size_bytes for one in found)
        make_console().print(f"{_size(total_bytes)} {verb} deleted in {len(found)} places", highlight=False)


def _find(study: Study, claim: Claim, keep: int | None) -> list[Needless]:
    """Return what may be deleted. Raises ResnasError where a coordinator that lives trains trials of the study."""
    trials = load_trials(study)
    owners = {Recorded.of(trial).owner for trial in trials if trial.state.name == "RUNNING"} - {""}
    if any(claim.is_alive(owner) for owner in owners):
        raise ResnasError(f"another search is running the study {study.name!r}; clean it when that has ended")
    with Console(stderr=True).status("looking through the results"):
        return find_needless(study, trials, keep)


def _print_table(study: Study, found: Sequence[Needless]) -> None:
    if not found:
        make_console().print(f"[bold]{study.name}[/bold]: nothing to delete", highlight=False)
        return
    rows = [{**_row(study, one), "bytes": _size(one.size_bytes)} for one in found[:SHOWN_ROWS]]
    print_rows([{"size" if name == "bytes" else name: row[name] for name in row} for row in rows], "table")
    if len(found) > SHOWN_ROWS:
        make_console().print(f"… and {len(found) - SHOWN_ROWS} more (--format csv lists all)", highlight=False)


def _delete(study: Study, claim: Claim, found: Sequence[Needless]) -> None:
    """Delete what was found as long as no search can have started meanwhile. Raises ResnasError."""
    from rich.progress import Progress

    with Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("deleting", total=len(found))
        delete(_while_alone(study, claim, found), lambda one: progress.advance(task))


def _while_alone(study: Study, claim: Claim, found: Sequence[Needless]) -> Iterator[Needless]:
    for number, one in enumerate(found):
        if not claim.has_turn():
            raise ResnasError(
                f"deleted {number} of {len(found)}; the connection to the storage of {study.name!r} broke, and "
                "another search may have started. The same command deletes the rest"
            )
        yield one


def _row(study: Study, one: Needless) -> dict[str, Any]:
    place = str(one.path.relative_to(study.results_folder))
    return {"trial": one.trial, "what": one.what, "why": one.why, "bytes": one.size_bytes, "path": place}


def _size(size_bytes: int) -> str:
    """Write a size for people."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= one:
            return f"{size_bytes / one:.1f} {unit}"
    return f"{size_bytes} B"
