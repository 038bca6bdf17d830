"""From the trials of a study to its rankings: which trials may be compared, and the files that keep the outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pandas

from resnas.ranking import Ranking, rank
from resnas.results import RecordedTrial, completed, property_names, table
from resnas.study import Study, derive_seed

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share of it that is done."""


def comparable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the complete rows that were trained on the same data as most: others are never compared with them."""
    rows = completed(rows)
    hashes = Counter(row["data_sha256"] for row in rows)
    return [row for row in rows if row["data_sha256"] == hashes.most_common(1)[0][0]]


def analyse(
    study: Study, trials: Sequence[RecordedTrial], targets: Sequence[str] = (), progress: Progress | None = None
) -> list[Ranking]:
    """Rank the properties for each target (those of the study by default), and keep `ranking.csv` and
    `ranking.json`."""
    rows = comparable(table(trials))
    frame = pandas.DataFrame(rows)
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
    pandas.concat([frame for frame in frames if len(frame)] or frames).to_csv(folder / "ranking.csv", index=False)
    (folder / "ranking.json").write_text(
        json.dumps([ranking.to_dict() for ranking in rankings], indent=1), encoding="utf-8"
    )
