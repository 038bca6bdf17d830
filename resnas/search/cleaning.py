"""What a study's results folder holds that nobody needs: found without touching it, and deleted.

Results are never among it: a trial's log, metrics and `result.json` stay where it has ended, and so does the study.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from optuna.trial import FrozenTrial

from resnas.atomic import PARTIAL
from resnas.errors import ResnasError
from resnas.results import COUNTED, Recorded
from resnas.search.disk import KeptCheckpoints
from resnas.search.opening import trial_folder
from resnas.search.storage import locate
from resnas.study import Study

RECENT_S = 600.0
"""How long a file may take to be written."""


@dataclass(frozen=True)
class Needless:
    """A file or folder that may be deleted.

    Attributes:
        trial: its number; None for what belongs to no trial.
        what: checkpoints, folder or unfinished file.
        why: why nobody needs it.
        path: of the file or folder.
        size_bytes: of all files in it; files that are one by links count once.
    """

    trial: int | None
    what: str
    why: str
    path: Path
    size_bytes: int


def find_needless(study: Study, trials: Sequence[FrozenTrial], keep: int | None = None) -> list[Needless]:
    """Return what may be deleted while no search trains trials of the study.

    Where several coordinators can share it, one may be starting: a folder of a trial that comes after all of these, and
    a file that was written just now, are then left alone.

    Args:
        study: whose results folder.
        trials: all of the study.
        keep: best trials whose checkpoints are kept; None is `search.keep_checkpoints`.
    """
    found = [_needless(number, "folder", why, path) for number, why, path in _folders(study, trials)]
    gone = [one.path for one in found]
    kept = KeptCheckpoints(study, trials, keep)
    best = study.search.keep_checkpoints if keep is None else keep
    endings = {trial.number: Recorded.of(trial).ending for trial in trials}
    for number in kept.needless:
        path = trial_folder(study, number) / "checkpoints"
        if path.parent not in gone:
            why = f"not among the best {best}" if endings[number] == "complete" else f"the trial is {endings[number]}"
            found.append(_needless(number, "checkpoints", why, path))
    gone = [one.path for one in found]
    for path in sorted(study.results_folder.rglob(f"*{PARTIAL}")):
        if any(folder in gone for folder in path.parents) or (_is_shared(study) and _is_recent(path)):
            continue
        if path.is_file():
            found.append(_needless(_number(path, study), "unfinished file", "its writer was killed", path))
    return found


def delete(found: Iterable[Needless], progress: Callable[[Needless], None] = lambda one: None) -> None:
    """Delete what was found.

    Args:
        found: by `find_needless`.
        progress: called after each.

    Raises:
        ResnasError: something could not be deleted; the rest is gone.
    """
    failed: list[OSError] = []
    for one in found:
        try:
            shutil.rmtree(one.path) if one.path.is_dir() else one.path.unlink(missing_ok=True)
        except OSError as error:
            failed.append(error)
        progress(one)
    if failed:
        raise ResnasError(f"{len(failed)} of these could not be deleted; the first: {failed[0]}")


def _folders(study: Study, trials: Sequence[FrozenTrial]) -> list[tuple[int, str, Path]]:
    """Return number, reason and path of the folders of trials that have not ended and will not."""
    known = {trial.number: Recorded.of(trial) for trial in trials}
    going_on = {trial.number for trial in trials if not trial.state.is_finished()}
    ended = {(one.key, one.replicate) for one in known.values() if one.ending in COUNTED}
    found = []
    for path in sorted((study.results_folder / "trials").glob("[0-9]*")):
        if not path.name.isdigit() or (path / "result.json").exists():
            continue
        number = int(path.name)
        one = known.get(number)
        if one is None:
            if not _is_shared(study) or number < max(known, default=-1):
                found.append((number, "the study has no such trial", path))
        elif number in going_on:
            continue
        elif one.ending == "infeasible":
            found.append((number, "infeasible, never trained", path))
        elif one.ending == "interrupted" and (not one.key or (one.key, one.replicate) in ended):
            found.append((number, "interrupted, ended as another trial", path))
    return found


def _is_shared(study: Study) -> bool:
    return locate(study).kind == "postgresql"


def _is_recent(path: Path) -> bool:
    """Whether its writer may still be at work, or has just ended."""
    try:
        return time.time() - path.stat().st_mtime < RECENT_S
    except FileNotFoundError:
        return True


def _needless(number: int | None, what: str, why: str, path: Path) -> Needless:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    sizes = {(status.st_dev, status.st_ino): status.st_size for status in (one.stat() for one in files)}
    return Needless(number, what, why, path, sum(sizes.values()))


def _number(path: Path, study: Study) -> int | None:
    """Return the trial in whose folder a file lies."""
    parts = path.relative_to(study.results_folder).parts
    return int(parts[1]) if len(parts) > 2 and parts[0] == "trials" and parts[1].isdigit() else None
