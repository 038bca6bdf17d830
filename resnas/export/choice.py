"""Which architecture of a study is meant, by its key or as the best, and which trial has its weights."""

from __future__ import annotations

from collections.abc import Sequence

from resnas.architecture import Architecture
from resnas.comparison import comparable, sign, trained
from resnas.errors import InputError, nearest
from resnas.results import Recorded, RecordedTrial, table
from resnas.search.opening import trial_folder
from resnas.study import Study

LISTED = 5
"""Keys that a message names, the best first."""


def kept_trial(study: Study, trials: Sequence[RecordedTrial], key: str) -> int:
    """Return the number of the best complete trial of an architecture whose checkpoint was kept.

    Raises:
        InputError: there is none.
    """
    name, direction = next(iter(study.directions.items()))
    rows = [row for row in comparable(table(trials)) if row["key"] == key]
    for row in sorted(rows, key=lambda row: sign(direction) * row[name]):
        if (trial_folder(study, row["number"]) / "checkpoints" / "last.ckpt").is_file():
            return int(row["number"])
    raise InputError(
        f"no trial of the architecture {key} has kept its checkpoint (search.keep_checkpoints is "
        f"{study.search.keep_checkpoints}); train it with: python cli.py train {study.path} --architecture {key}"
    )


def chosen(study: Study, trials: Sequence[RecordedTrial], key: str | None) -> Architecture:
    """Return an architecture of a study.

    Args:
        study: whose.
        trials: all of it.
        key: of the architecture, or a beginning that no other one shares; None is the best by the first objective.

    Raises:
        InputError: there is no such architecture, or there are several.
    """
    recorded = [Recorded.of(trial) for trial in trials]
    known = {one.key: one.architecture for one in recorded if one.architecture is not None}
    best = [one.key for one in trained(comparable(table(trials)), study.directions, study.limits)]
    if key is None and not best:
        raise InputError(
            f"the study {study.name!r} has no complete trial yet, so there is no best architecture; go on with: "
            f"python cli.py search {study.path}"
        )
    found = best[:1] if key is None else [one for one in known if one.startswith(key)]
    if len(found) == 1:
        return Architecture(**known[found[0]])
    first = list(dict.fromkeys([*(one for one in best if one in found or not found), *found, *known]))[:LISTED]
    if found:
        raise InputError(
            f"--architecture: {key!r} begins {len(found)} keys of the study {study.name!r}, such as "
            f"{', '.join(one for one in first if one in found)}; give more of it"
        )
    raise InputError(
        f"--architecture: unknown key {key!r}; the study {study.name!r} has {len(known)}, the best ones first: "
        f"{', '.join(first) or 'none'}{nearest(key, known)}; or give a file that ends in .yaml"
    )
