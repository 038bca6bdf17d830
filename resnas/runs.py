"""A fixed list of runs, executed through an executor: each spec once, kept under the hash of what identifies it.

The truth is each run's `result.json`, so the same list goes on after Ctrl-C, a kill or a crash, and a longer list
trains only what is new. No database, no sampler: what is to be run is known before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from resnas.atomic import write_text
from resnas.errors import ResnasError
from resnas.executor import Aborted, Ended, Executor, Limits, Reported
from resnas.trial import TRANSIENT, TrialResult, TrialSpec

WAIT_S = 0.2
RETRIES = 1
"""How often a run is started again that ended for a reason outside it."""
IDENTIFYING = ("architecture", "task", "budget", "seed", "data_seed", "test")
"""Fields of a spec that its metrics depend on."""


@dataclass(frozen=True)
class Run:
    """A spec, whose folder the runner chooses, and what people call it."""

    spec: TrialSpec
    label: str

    @property
    def identified_by(self) -> dict[str, Any]:
        """What two runs share that need be run only once."""
        return {name: getattr(self.spec, name) for name in IDENTIFYING}

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits, the same on every machine: sha256 of `identified_by`."""
        text = json.dumps(self.identified_by, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Running:
    """A run under way."""

    run: Run
    step: int = 0
    started_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class RunsSnapshot:
    """How a list of runs stands, for a live view."""

    stage: str
    done: int
    expected: int
    running: list[Running]
    elapsed_s: float
    left_s: float | None
    last: str


class Runner:
    """Runs lists of specs, one list after the other; results of earlier lists and of earlier processes are reused."""

    def __init__(
        self,
        executor: Executor,
        folder: Path,
        limits: Limits,
        data_sha256: str,
        watch: Callable[[RunsSnapshot], None] = lambda snapshot: None,
    ) -> None:
        """Take up what lies in the folder.

        Args:
            executor: where runs are executed.
            folder: of the results, one folder a run.
            limits: of each run.
            data_sha256: of the data; results on other data are not used.
            watch: called several times a second while runs are under way.
        """
        self.expected = 0
        """Distinct runs in all lists, as far as the caller knows; for the time left."""
        self._executor, self._folder, self._limits = executor, folder, limits
        self._data_sha256, self._watch = data_sha256, watch
        self._results: dict[str, TrialResult] = {}
        self._running: dict[int, Running] = {}
        self._attempts: dict[str, int] = {}
        self._durations_s: list[float] = []
        self._started_s = time.monotonic()
        self._submitted = 0
        self._last = ""
        self._stop = False

    def stop(self) -> None:
        """Ask for a clean end: `run` raises Aborted. May be called from a signal handler."""
        self._stop = True
        self._executor.abort()

    def run(self, runs: Sequence[Run], stage: str = "") -> list[TrialResult]:
        """Return the results in the order of the runs; equal runs are run once.

        Args:
            runs: what to run.
            stage: what these runs are for, for people.

        Raises:
            Aborted: `stop` was called; what had ended is kept.
            ResnasError: the disk is full, or results cannot be written.
        """
        wanted = {run.identity: run for run in runs}
        waiting = [run for identity, run in wanted.items() if not self._is_known(identity, run)]
        self.expected = max(self.expected, len(self._results) + len(waiting))
        try:
            self._work_off(waiting, stage)
        except BaseException:
            self._executor.stop()
            self._running.clear()
            raise
        return [self._results[run.identity] for run in runs]

    def _work_off(self, waiting: list[Run], stage: str) -> None:
        while waiting or self._running:
            if self._stop:
                raise Aborted("stopped while runs were under way")
            while waiting and len(self._running) < self._executor.slots:
                self._start(waiting.pop(0))
            for event in self._executor.events(WAIT_S):
                if isinstance(event, Reported):
                    self._running[event.number].step = event.step
                    self._executor.answer(event.number, False)
                elif (again := self._end(event)) is not None:
                    waiting.insert(0, again)
            self._watch(self._snapshot(stage))

    def _is_known(self, identity: str, run: Run) -> bool:
        """Whether there is a result of an equal run, in memory or in its folder."""
        if identity not in self._results and (kept := self._kept(run)) is not None:
            self._results[identity] = kept
        return identity in self._results

    def _kept(self, run: Run) -> TrialResult | None:
        """Return the result that an earlier process has written; None where there is none on the same data."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads((self._folder / run.identity / "result.json").read_text(encoding="utf-8"))
            same = json.dumps(kept.pop("run"), sort_keys=True) == json.dumps(run.identified_by, sort_keys=True)
            result = TrialResult(**kept)
            if same and result.data_sha256 in (self._data_sha256, ""):
                return result
        return None

    def _start(self, run: Run) -> None:
        folder = self._folder / run.identity
        last = folder / "checkpoints" / "last.ckpt"  # of the same run, interrupted
        checkpoint = str(last) if last.is_file() else None
        spec = replace(run.spec, folder=str(folder), checkpoint=checkpoint)
        self._submitted += 1
        self._running[self._submitted] = Running(run)
        self._executor.submit(self._submitted, spec, self._limits)

    def _end(self, event: Ended) -> Run | None:
        """Keep how a run ended; return it where it is to be run again."""
        running, result = self._running.pop(event.number), event.result
        run, identity = running.run, running.run.identity
        if result.state == "complete" and result.data_sha256 != self._data_sha256:
            result = TrialResult.failure("invalid result", "trained on other data", result.data_sha256)
        if result.cause == "disk full":
            raise ResnasError(f"a run met a full disk; the same command goes on when there is room: {result.reason}")
        self._last = f"{run.label}: {result.reason or result.state}"
        if result.cause in TRANSIENT:
            self._attempts[identity] = self._attempts.get(identity, 0) + 1
            if self._attempts[identity] <= RETRIES:
                self._last += ", runs again"
                return run
        else:  # what lies outside the run is tried again by the next command
            self._keep(run, result)
        self._results[identity] = result
        self._durations_s.append(time.monotonic() - running.started_s)
        return None

    def _keep(self, run: Run, result: TrialResult) -> None:
        folder = self._folder / run.identity
        kept = {**asdict(result), "run": run.identified_by}
        try:
            write_text(folder / "result.json", json.dumps(kept, indent=1))
        except OSError as error:
            raise ResnasError(f"cannot write to {folder}: {error.strerror or error}") from error
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # only an interrupted run goes on from them

    def _snapshot(self, stage: str) -> RunsSnapshot:
        left = max(0, self.expected - len(self._results))
        mean_s = sum(self._durations_s) / len(self._durations_s) if self._durations_s else None
        return RunsSnapshot(
            stage=stage,
            done=len(self._results),
            expected=max(self.expected, len(self._results)),
            running=list(self._running.values()),
            elapsed_s=time.monotonic() - self._started_s,
            left_s=None if mean_s is None else left * mean_s / self._executor.slots,
            last=self._last,
        )
