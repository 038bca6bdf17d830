"""The command `analyze`: rankings with all that they rest on, Optuna's importances beside them, and the self-test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from resnas.analysis import FAILED, Progress, analyse, effect_rows
from resnas.cli.tables import finite, make_console, print_rows
from resnas.errors import InputError
from resnas.problems import unknown
from resnas.ranking import NOT_SEPARABLE, Ranking
from resnas.ranking.result import interval, number
from resnas.search import load_trials
from resnas.search.importances import WHY_THEY_DIFFER, OptunaImportance, importances_beside
from resnas.study import Study, known_metrics

SHOWN_PARAMETERS = 8


def run_analyze(path: Path, targets: list[str], overrides: list[str], format: str) -> None:
    """Rank properties and print the rankings."""
    study = Study.load(path, overrides)
    _check_targets(study, targets)
    trials = load_trials(study)
    with _progress() as progress:
        rankings = analyse(study, trials, targets, progress)
    optuna = {ranking.target: importances_beside(study, trials, ranking.target) for ranking in rankings}
    if format == "csv":
        print_rows(effect_rows(rankings), format)
    elif format == "json":
        found = [_plain(ranking, optuna[ranking.target]) for ranking in rankings]
        print(json.dumps(found, indent=1))
    else:
        for ranking in rankings:
            _print_basis(ranking)
            print_ranking(ranking)
            _print_beside(ranking, optuna[ranking.target])


def _check_targets(study: Study, targets: list[str]) -> None:
    known = [*known_metrics(study.task), FAILED]
    for target in targets:
        if target not in known:
            raise InputError(f"--target: {unknown(target, known, 'metric')}")


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.progress import Progress as Bar

    with Bar(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("ranking", total=1.0)
        yield lambda step, share: bar.update(task, completed=share, description=step)


def _plain(ranking: Ranking, optuna: Sequence[OptunaImportance]) -> dict[str, Any]:
    importances = [finite(asdict(one)) for one in optuna]
    return {**ranking.to_dict(), "sentence": ranking.sentence(), "optuna": importances}


def print_rankings(rankings: Sequence[Ranking]) -> None:
    """Print a table of effects for each reliable ranking, and the verdict of each."""
    for ranking in rankings:
        print_ranking(ranking)


def print_ranking(ranking: Ranking) -> None:
    """Print the effects of a reliable ranking, and the verdict."""
    if ranking.reliable:
        effects = [
            {
                "property": effect.name + (f" + {len(effect.correlated_with)}" if effect.correlated_with else ""),
                "verdict": effect.verdict,
                "importance": effect.importance,
                "90 % from": effect.importance_low,
                "to": effect.importance_high,
                "p": effect.p_value,
                "direction": effect.direction,
            }
            for effect in ranking.moved_together()
        ]
        print_rows(effects, "table", f"What moves {ranking.target} (importance in its units)")
    make_console().print(f"[bold]{escape(ranking.sentence())}[/bold]", highlight=False)


def _print_basis(ranking: Ranking) -> None:
    """Print what a ranking rests on."""
    if ranking.r2 is None:
        return
    parts = [
        f"{ranking.target}: {ranking.n_trials} trials of {ranking.n_architectures} architectures, "
        f"{ranking.n_random} of them random",
        f"held-out R² {number(ranking.r2)} {interval(ranking.r2_low, ranking.r2_high)} by {ranking.surrogate}",
        f"against shuffled targets p = {number(ranking.p_value, 3)}",
    ]
    if ranking.noise_ceiling is not None:
        parts.append(f"no model can beat R² {number(ranking.noise_ceiling)} (noise of the seeds)")
    if ranking.n_outliers:
        parts.append(f"{ranking.n_outliers} outliers drawn in")
    make_console().print("; ".join(parts) + ".", highlight=False)


def _print_beside(ranking: Ranking, optuna: Sequence[OptunaImportance]) -> None:
    """Print interactions, checks and Optuna's importances."""
    found = [one for one in ranking.interactions if one.verdict != NOT_SEPARABLE]
    if found:
        rows = [{"properties": f"{one.one} × {one.other}", "size": one.size, "p": one.p_value, "verdict": one.verdict}
                for one in found]  # fmt: skip
        print_rows(rows, "table", f"What depends on what, for {ranking.target} (size in its units)")
    if ranking.checks:
        print_rows(
            [
                {"once more by": one.name, "R²": one.r2, "agreement (weighted τ)": one.agreement}
                for one in ranking.checks
            ],
            "table",
            "Checks",
        )
    if optuna:
        shown = [
            {"parameter": one.parameter, "PED-ANOVA": one.ped_anova, "fANOVA": one.fanova}
            for one in optuna[:SHOWN_PARAMETERS]
        ]
        print_rows(shown, "table", f"Optuna's own importances for {ranking.target}")
        make_console().print(f"{WHY_THEY_DIFFER}.", highlight=False)


def run_self_test(studies: int, seed: int, format: str) -> None:
    """Print how often the protocol is wrong on studies whose truth is known."""
    from resnas.ranking.self_test import self_test

    with _progress() as progress:
        found = self_test(studies, seed, progress=progress)
    rows = [one.to_dict() for one in found]
    print_rows(rows, format, "Shares of studies whose truth is known; coverage is of the 90 % intervals of effects")
