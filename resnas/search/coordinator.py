"""The coordinator: the one process that owns a study and is its only writer.

It proposes architectures, hands them to an executor, answers their reports, and records every ending with its reason.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.trial import TrialState

from resnas.architecture import Architecture
from resnas.comparison import sign
from resnas.errors import ResnasError
from resnas.executor import Ended, Executor, Limits, Reported, inspect_task
from resnas.files import environment, study_as_used, write_json, write_yaml
from resnas.results import COUNTED, Recorded, table, write_csv
from resnas.search import proposals
from resnas.search.claim import claimed
from resnas.search.opening import (
    STOPPED,
    check_data,
    make_results_folder,
    open_study,
    requeue_unfinished,
    set_attributes,
    trial_folder,
)
from resnas.study import Study, derive_seed
from resnas.trial import TrialResult, TrialSpec

WAIT_S = 0.2
FAILURES_IN_A_ROW = 8
"""So many failed trials in a row end the search: something is wrong that more trials will not mend."""
RESULTS_EVERY_S = 10.0
"""How often `results.csv` is written while the search runs."""


@dataclass
class RunningTrial:
    """A trial that is being trained."""

    trial: optuna.Trial
    label: str
    origin: str
    step: int = 0
    started_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Snapshot:
    """How the search stands, for a live view."""

    total: int
    endings: Counter[str]
    running: list[RunningTrial]
    best: dict[str, Any] | None
    elapsed_s: float
    left_s: float | None
    last: str


class Coordinator:
    """Runs one study to its end, or until it is told to stop."""

    def __init__(
        self, study: Study, executor: Executor, watch: Callable[[Snapshot], None] = lambda snapshot: None
    ) -> None:
        self._study = study
        self._executor = executor
        self._watch = watch
        self._stop = False
        self._running: dict[int, RunningTrial] = {}
        self._endings: Counter[str] = Counter()
        self._replicates: defaultdict[str, set[int]] = defaultdict(set)
        """The replicates of each architecture (by key) that have ended or run."""
        self._failures: list[str] = []
        self._durations_s: list[float] = []
        self._best: dict[str, Any] | None = None
        self._last = ""
        self._started_s = time.monotonic()
        self._results_written_s = 0.0

    def stop(self) -> None:
        """Ask for a clean end: running trials are ended and queued again. May be called from a signal handler."""
        self._stop = True

    def run(self) -> bool:
        """Run until `n_trials` trials of the study have ended; return False if it was stopped before.

        Raises:
            InputError: the study cannot be opened as it is.
            ResnasError: another coordinator runs it, no feasible architecture exists, or too many trials failed.
        """
        make_results_folder(self._study)
        with claimed(self._study):
            optuna_study = open_study(self._study)
            self._prepare(optuna_study)
            optuna_study.pruner = proposals.pruner(self._study)
            requeue_unfinished(optuna_study, "interrupted: its coordinator died")
            if not proposals.enqueue_start(self._study, optuna_study):
                self._last = "no baseline: the space has no feasible architecture with the residual `fixed`"
            self._recall(optuna_study)
            try:
                return self._loop(optuna_study)
            finally:
                self._executor.stop()
                self._running.clear()
                requeue_unfinished(optuna_study, STOPPED)
                self._write_results(optuna_study)

    def _prepare(self, optuna_study: optuna.Study) -> None:
        """Look at the data before any trial, and write down what the figures depend on."""
        task = {self._study.task_name: self._study.task.model_dump(mode="json")}
        facts = self._executor.call(inspect_task, task)
        check_data(self._study, optuna_study, facts["data_sha256"])
        folder = self._study.results_folder
        write_json(folder / "environment.json", facts | environment(self._study, self._executor.slots))
        write_yaml(folder / "study.yaml", study_as_used(self._study))
        write_yaml(folder / "space.yaml", self._study.search_space.to_dict())

    def _loop(self, optuna_study: optuna.Study) -> bool:
        exhausted = False
        while not self._stop:
            while not exhausted and len(self._running) < self._executor.slots and self._left() > 0:
                exhausted = not self._start(optuna_study)
            if not self._running:
                return True
            for event in self._executor.events(WAIT_S):
                if isinstance(event, Reported):
                    self._answer(event)
                else:
                    self._end(optuna_study, event)
            self._watch(self.snapshot())
        return False

    def _recall(self, optuna_study: optuna.Study) -> None:
        """Take up the trials of earlier runs."""
        for trial in optuna_study.get_trials(deepcopy=False):
            recorded = Recorded.of(trial)
            if recorded.key:
                self._replicates[recorded.key] |= {recorded.replicate} if recorded.ending in COUNTED else set()
            if recorded.ending in COUNTED:
                self._endings[recorded.ending] += 1
            if recorded.ending == "complete":
                self._note_best(trial.values, trial.number, recorded.label)

    def _left(self) -> int:
        return self._study.search.n_trials - sum(self._endings.values()) - len(self._running)

    def _start(self, optuna_study: optuna.Study) -> bool:
        """Start the next trial; False where there is none."""
        counted = sum(self._endings.values()) + len(self._running)
        proposal = proposals.propose(self._study, optuna_study, counted)
        if proposal is None:
            return False
        trial, architecture, origin = proposal
        if architecture.key not in self._replicates:
            proposals.enqueue_replicates(self._study, optuna_study, trial)
        replicate = next(free for free in itertools.count() if free not in self._replicates[architecture.key])
        spec = self._spec(architecture, replicate, trial.number)
        set_attributes(
            optuna_study,
            trial,
            architecture=spec.architecture,
            key=architecture.key,
            label=architecture.label,
            replicate=replicate,
            seed=spec.seed,
            data_seed=spec.data_seed,
            origin=origin,
        )
        self._replicates[architecture.key].add(replicate)
        search = self._study.search
        self._executor.submit(trial.number, spec, Limits(search.trial_timeout_s, search.memory_limit_gib))
        self._running[trial.number] = RunningTrial(trial, architecture.label, origin)
        return True

    def _spec(self, architecture: Architecture, replicate: int, number: int) -> TrialSpec:
        """Return what the trial is told; batches depend on the replicate alone, so that architectures are paired."""
        seed = self._study.search.seed
        return TrialSpec(
            architecture=architecture.model_dump(mode="json"),
            task={self._study.task_name: self._study.task.model_dump(mode="json")},
            budget=self._study.budget.model_dump(mode="json"),
            seed=derive_seed(seed, "weights", architecture.key, replicate),
            data_seed=derive_seed(seed, "data", replicate),
            folder=str(trial_folder(self._study, number)),
            threads=self._study.search.threads_per_trial,
        )

    def _answer(self, event: Reported) -> None:
        running = self._running[event.number]
        running.step = event.step
        prune = False
        if self._study.search.pruner != "none":
            (objective,) = self._study.objectives
            running.trial.report(event.metrics[objective], event.step)
            spared = running.origin == "baseline" or event.step >= self._study.budget.steps
            prune = not spared and running.trial.should_prune()
        self._executor.answer(event.number, prune)

    def _end(self, optuna_study: optuna.Study, event: Ended) -> None:
        """Record how a trial ended."""
        running, result = self._running.pop(event.number), self._checked(event.result)
        for name, value in result.metrics.items():
            running.trial.set_user_attr(name, value)
        set_attributes(
            optuna_study, running.trial, ending=result.state, reason=result.reason, data_sha256=result.data_sha256
        )
        folder = trial_folder(self._study, event.number)
        write_json(folder / "result.json", result.to_dict())
        values = None
        if result.state == "complete":
            values = [result.metrics[name] for name in self._study.objectives]
            optuna_study.tell(running.trial, values)
        else:
            optuna_study.tell(running.trial, state=TrialState.PRUNED if result.state == "pruned" else TrialState.FAIL)
        self._endings[result.state] += 1
        self._durations_s.append(time.monotonic() - running.started_s)
        self._note_best(values, event.number, running.label)
        outcome = result.reason or ", ".join(f"{name} {result.metrics[name]:.4g}" for name in self._study.objectives)
        self._last = f"trial {event.number} {result.state}: {running.label}: {outcome}"
        self._count_failures(result, event.number)
        if time.monotonic() - self._results_written_s > RESULTS_EVERY_S:
            self._write_results(optuna_study)

    def _checked(self, result: TrialResult) -> TrialResult:
        """A trial whose objective is missing or not finite has failed."""
        missing = [name for name in self._study.objectives if not math.isfinite(result.metrics.get(name, math.nan))]
        if result.state == "complete" and missing:
            return TrialResult.failure("invalid result", f"no finite value of {', '.join(missing)}", result.data_sha256)
        return result

    def _count_failures(self, result: TrialResult, number: int) -> None:
        self._failures = [*self._failures, result.reason] if result.state == "failed" else []
        if len(self._failures) >= FAILURES_IN_A_ROW:
            cause, times = Counter(self._failures).most_common(1)[0]
            log = trial_folder(self._study, number) / "log.txt"
            raise ResnasError(f"{len(self._failures)} trials in a row failed, {times} of them so: {cause} (see {log})")

    def _note_best(self, values: list[float] | None, number: int, label: str) -> None:
        if not values:
            return
        name, direction = next(iter(self._study.directions.items()))
        if self._best is None or sign(direction) * values[0] < sign(direction) * self._best["value"]:
            self._best = {"metric": name, "value": values[0], "number": number, "label": label}

    def snapshot(self) -> Snapshot:
        """Return how the search stands."""
        left = self._left() + len(self._running)
        mean_s = sum(self._durations_s) / len(self._durations_s) if self._durations_s else None
        return Snapshot(
            total=self._study.search.n_trials,
            endings=self._endings,
            running=list(self._running.values()),
            best=self._best,
            elapsed_s=time.monotonic() - self._started_s,
            left_s=None if mean_s is None else left * mean_s / self._executor.slots,
            last=self._last,
        )

    def _write_results(self, optuna_study: optuna.Study) -> None:
        write_csv(table(optuna_study.get_trials(deepcopy=False)), self._study.results_folder / "results.csv")
        self._results_written_s = time.monotonic()
