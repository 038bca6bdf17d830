"""The disk that a study takes: whose checkpoints are kept while it runs, and how much space must stay free.

Only checkpoints are ever deleted here; logs, metrics and results stay.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial

from resnas.comparison import dominates, is_beyond, sign
from resnas.errors import InputError, ResnasError
from resnas.results import COUNTED, Recorded
from resnas.search.opening import trial_folder
from resnas.study import Study

CHECK_EVERY_S = 5.0
GIB = 2**30
Run = tuple[str, int]
"""What an interrupted trial and the one that goes on from it share: key of the architecture, and replicate."""


class KeptCheckpoints:
    """Keeps the checkpoints of the best complete trials, and of interrupted ones until they have gone on to an end.

    Nothing is deleted when it is made; an ending costs the same however many trials the study has.
    """

    def __init__(self, study: Study, trials: Iterable[FrozenTrial], keep: int | None = None) -> None:
        """Take up the trials of earlier runs.

        Args:
            study: whose trials.
            trials: all of it so far, none of which runs.
            keep: best trials whose checkpoints are kept; None is `search.keep_checkpoints`.
        """
        self._study = study
        self._best = _Best(study, study.search.keep_checkpoints if keep is None else keep)
        self._waiting: dict[Run, int] = {}
        trials = list(trials)
        recorded = {trial.number: Recorded.of(trial) for trial in trials}
        ended = {(one.key, one.replicate) for one in recorded.values() if one.ending in COUNTED}
        complete = {
            one.number: one.values for one in trials if recorded[one.number].ending == "complete" and one.values
        }
        beyond = {one.number for one in trials if is_beyond(one.constraints)}
        fallen = set(self._best.add(complete, beyond))
        for trial in trials:
            one = recorded[trial.number]
            run = one.key, one.replicate
            if trial.number in complete:
                continue
            if one.key and one.ending in ("interrupted", "retried", "running") and run not in ended:
                fallen |= self._wait(trial.number, run)
            else:
                fallen.add(trial.number)
        self.needless: list[int] = sorted(number for number in fallen if self._folder(number).is_dir())
        """Trials of earlier runs that have checkpoints which need not be kept."""

    def tidy(self) -> None:
        """Delete what earlier runs have left and need not be kept."""
        self._delete(self.needless)
        self.needless = []

    def to_go_on(self, key: str, replicate: int) -> str | None:
        """Return the `last.ckpt` that a trial of this architecture and replicate may go on from
        (`TrialSpec.checkpoint`), or None."""
        number = self._waiting.get((key, replicate))
        last = None if number is None else self._folder(number) / "last.ckpt"
        return str(last) if last is not None and last.is_file() else None

    def interrupted(self, number: int, key: str, replicate: int) -> None:
        """Keep the checkpoint of a trial that ended early and will be run again, rather than that which it began
        from."""
        self._delete(self._wait(number, (key, replicate)))

    def ended(
        self, number: int, key: str, replicate: int, values: Sequence[float] | None = None, is_beyond: bool = False
    ) -> None:
        """Delete what need not be kept any more.

        Args:
            number: the trial that ended for good.
            key: of its architecture.
            replicate: of its architecture.
            values: of the objectives, for a complete trial.
            is_beyond: whether it breaks a limit of the study, and so can never be the best.
        """
        before = self._waiting.pop((key, replicate), number)
        fallen = {before} - {number}
        fallen |= {number} if values is None else set(self._best.add({number: values}, {number} if is_beyond else ()))
        self._delete(fallen)

    def _wait(self, number: int, run: Run) -> set[int]:
        """Note the latest interrupted trial that has a checkpoint; return the one that is not needed any more."""
        before = self._waiting.get(run, number)
        if before != number and not (self._folder(number) / "last.ckpt").is_file():
            return {number}
        self._waiting[run] = number
        return {before} - {number}

    def _folder(self, number: int) -> Path:
        return trial_folder(self._study, number) / "checkpoints"

    def _delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            shutil.rmtree(self._folder(number), ignore_errors=True)  # what is left then is found by the next run


class _Best:
    """The best complete trials: those on the Pareto front first, then by the first objective, last those beyond a
    limit."""

    def __init__(self, study: Study, keep: int) -> None:
        self._keep = keep
        self._signs = [sign(direction) for direction in study.directions.values()]
        self._front: dict[int, list[float]] = {}
        """Of all complete trials, whether their checkpoints are kept or not."""
        self._kept: dict[int, list[float]] = {}
        self._beyond: set[int] = set()

    def add(self, complete: Mapping[int, Sequence[float]], beyond: Collection[int] = ()) -> list[int]:
        """Take up complete trials, by number with their values; return those of all that are not among the best."""
        self._beyond |= set(beyond)
        for number, values in complete.items():
            point = [sign * value for sign, value in zip(self._signs, values, strict=True)]
            if number not in beyond and not any(dominates(other, point) for other in self._front.values()):
                self._front = {one: other for one, other in self._front.items() if not dominates(point, other)}
                self._front[number] = point
            self._kept[number] = point
        order = sorted(self._kept, key=self._rank)
        for fallen in order[self._keep :]:
            del self._kept[fallen]
        return order[self._keep :]

    def _rank(self, number: int) -> tuple[bool, bool, float, int]:
        return number in self._beyond, number not in self._front, self._kept[number][0], number


def check_free(study: Study) -> None:
    """Refuse to start where there is less free space than `search.min_free_gib`. Raises InputError."""
    if lack := _lack(study):
        raise InputError(lack)


class FreeSpace:
    """Looks at the free space now and then while a search runs."""

    def __init__(
        self, study: Study, every_s: float = CHECK_EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._study = study
        self._every_s = every_s
        self._clock = clock
        self._next = clock()

    def check(self) -> None:
        """Look, if the last look is long enough ago; may be called as often as one likes.

        Raises:
            ResnasError: there is less free space than `search.min_free_gib`.
        """
        if self._clock() < self._next:
            return
        self._next = self._clock() + self._every_s
        if lack := _lack(self._study):
            raise ResnasError(f"stopped before the disk is full: {lack}; then go on with the same command")


def _lack(study: Study) -> str:
    """Return what is wrong with the free space and what to do about it, or nothing."""
    folder = study.results_folder
    existing = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    free, needed = shutil.disk_usage(existing).free / GIB, study.search.min_free_gib
    if free >= needed:
        return ""
    return (
        f"{folder} has {free:.2g} GiB of free disk space, and search.min_free_gib asks for {needed:.2g} GiB; make room "
        f"(for instance with: python cli.py clean {study.path}), or lower search.min_free_gib"
    )
