"""From the trials of a study to its rankings: which trials may be compared, and the files that keep the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas

from resnas.architecture import PROPERTIES
from resnas.atomic import write_text
from resnas.comparison import Row, comparable
from resnas.files import write_json
from resnas.ranking import Ranking, rank
from resnas.results import RecordedTrial, property_names, table
from resnas.study import Study, derive_seed

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share of it that is done."""
FAILED = "failed"
"""Target: 1 for a failed trial, 0 for a complete one. What makes trials fail is a question of its own."""
FEWEST_FAILED = 5
"""Failed architectures from which on that question is asked."""
FEWEST_TRIED = 40
"""Architectures from which on a report asks it by itself."""


def analyse(
    study: Study, trials: Sequence[RecordedTrial], targets: Sequence[str] = (), progress: Progress | None = None
) -> list[Ranking]:
    """Rank the properties for each target (those of the study by default), and keep `ranking.csv`, `ranking_levels.csv`
    and `ranking.json`.

    Complete trials are ranked. Pruned ones are left out: their metrics are of a shorter training. Failed ones have no
    metrics; they are ranked by the target `failed`, among the complete ones.
    """
    every_row = table(trials)
    targets = list(targets) or study.ranking.targets
    rankings = []
    for position, target in enumerate(targets):
        rows = with_failures(every_row) if target == FAILED else comparable(every_row)
        frame = pandas.DataFrame(rows, columns=None if rows else ["key"])
        frame[target] = frame[target] if target in frame else float("nan")
        ranking = rank(
            frame,
            [name for name in property_names(trials) if name in frame],
            target,
            seed=derive_seed(study.search.seed, "ranking", target),
            progress=_part(progress, target, position, len(targets)),
        )
        rankings.append(ranking)
    if targets == study.ranking.targets:
        _keep(study, rankings)
    return rankings


def analyse_for_report(
    study: Study, trials: Sequence[RecordedTrial], progress: Progress | None = None
) -> list[Ranking]:
    """Rank for each target of the study as `analyse`, and last by what makes trials fail, where enough trials tell."""
    asks = can_rank_failures(trials)
    share = len(study.ranking.targets) / (len(study.ranking.targets) + asks)
    rankings = analyse(study, trials, (), _scaled(progress, 0.0, share))
    return rankings + (analyse(study, trials, [FAILED], _scaled(progress, share, 1 - share)) if asks else [])


def can_rank_failures(trials: Sequence[RecordedTrial]) -> bool:
    """Whether so many architectures were tried, and failed, that what makes them fail can be ranked."""
    chosen = [row for row in table(trials) if row["ending"] in ("complete", "failed")]
    failed = {row["key"] for row in chosen if row["ending"] == "failed"}
    return len(failed) >= FEWEST_FAILED and len({row["key"] for row in chosen}) >= FEWEST_TRIED


def _scaled(progress: Progress | None, start: float, length: float) -> Progress | None:
    """Turn the progress of a part into that of the whole."""
    return None if progress is None else lambda step, share: progress(step, start + length * share)


def with_failures(rows: Sequence[Row]) -> list[Row]:
    """Return the complete and the failed trials with `failed` 0 or 1; without values where too few have failed."""
    chosen = [row for row in rows if row["ending"] in ("complete", "failed")]
    enough = len({row["key"] for row in chosen if row["ending"] == "failed"}) >= FEWEST_FAILED
    return [{**row, FAILED: float(row["ending"] == "failed") if enough else None} for row in chosen]


def _part(progress: Progress | None, target: str, position: int, parts: int) -> Progress | None:
    """Turn the progress of one target into that of all."""
    if progress is None:
        return None
    return lambda step, share: progress(f"{target}: {step}", (position + share) / parts)


def effect_rows(rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return one row per target and property, with the property's unit, meaning and the option that sets it."""
    frames = [ranking.to_frame() for ranking in rankings]
    rows = pandas.concat([frame for frame in frames if len(frame)] or frames).to_dict("records")
    return [
        {str(name): value for name, value in row.items()}
        | (PROPERTIES[str(row["name"])]._asdict() if row["name"] in PROPERTIES else {})
        for row in rows
    ]


def _keep(study: Study, rankings: Sequence[Ranking]) -> None:
    folder = study.results_folder
    levels = pandas.concat([ranking.levels_frame() for ranking in rankings])
    write_text(folder / "ranking.csv", pandas.DataFrame(effect_rows(rankings)).to_csv(index=False))
    write_text(folder / "ranking_levels.csv", levels.to_csv(index=False))
    write_json(folder / "ranking.json", [{**one.to_dict(), "sentence": one.sentence()} for one in rankings])
