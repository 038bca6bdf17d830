"""From the trials of a study to its rankings: which trials may be compared, and the files that keep the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas

from resnas.atomic import write_text
from resnas.comparison import comparable
from resnas.files import write_json
from resnas.ranking import Ranking, rank
from resnas.results import RecordedTrial, property_names, table
from resnas.study import Study, derive_seed

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share of it that is done."""


def analyse(
    study: Study, trials: Sequence[RecordedTrial], targets: Sequence[str] = (), progress: Progress | None = None
) -> list[Ranking]:
    """Rank the properties for each target (those of the study by default), and keep `ranking.csv` and
    `ranking.json`."""
    rows = comparable(table(trials))
    frame = pandas.DataFrame(rows, columns=None if rows else ["key"])
    names = [name for name in property_names(trials) if name in frame]
    targets = list(targets) or study.ranking.targets
    rankings = []
    for position, target in enumerate(targets):
        frame[target] = frame[target] if target in frame else float("nan")
        ranking = rank(
            frame,
            names,
            target,
            seed=derive_seed(study.search.seed, "ranking", target),
            progress=_part(progress, target, position, len(targets)),
        )
        rankings.append(ranking)
    if targets == study.ranking.targets:
        _keep(study, rankings)
    return rankings


def _part(progress: Progress | None, target: str, position: int, parts: int) -> Progress | None:
    """Turn the progress of one target into that of all."""
    if progress is None:
        return None
    return lambda step, share: progress(f"{target}: {step}", (position + share) / parts)


def _keep(study: Study, rankings: Sequence[Ranking]) -> None:
    folder = study.results_folder
    frames = [ranking.to_frame() for ranking in rankings]
    joined = pandas.concat([frame for frame in frames if len(frame)] or frames)
    write_text(folder / "ranking.csv", joined.to_csv(index=False))
    write_json(folder / "ranking.json", [ranking.to_dict() for ranking in rankings])
