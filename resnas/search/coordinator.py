"""The coordinator: it proposes architectures, hands them to an executor, answers their reports, and records endings.

Only coordinators write to a study; in a PostgreSQL database several may share one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

import optuna
from optuna.exceptions import UpdateFinishedTrialError

from resnas.comparison import is_beyond
from resnas.errors import ResnasError
from resnas.executor import Aborted, Ended, Executor, Limits, Reported, inspect_task
from resnas.results import COUNTED, Recorded, table, write_csv
from resnas.search import proposals
from resnas.search.claim import Claim, claimed
from resnas.search.disk import FreeSpace, KeptCheckpoints, check_free
from resnas.search.extension import extend
from resnas.search.failures import Failures
from resnas.search.ledger import Ledger
from resnas.search.opening import (
    check_data,
    make_results_folder,
    open_study,
    set_attributes,
    writing,
)
from resnas.search.pruning import make_pruner, should_prune
from resnas.search.recording import (
    DIED,
    OUT_OF_TIME,
    STOPPED,
    checked,
    end_unfinished,
    record_ending,
    record_study,
)
from resnas.search.snapshot import RunningTrial, Snapshot
from resnas.search.starting import UsedUp, next_trial
from resnas.search.time_limit import TimeLimit
from resnas.study import Study
from resnas.trial import TrialResult

WAIT_S = 0.2
RESULTS_EVERY_S = 10.0
"""How often `results.csv` is written while the search runs."""
OTHERS_EVERY_S = 5.0
"""How often to look for trials whose coordinator is gone."""


class Coordinator:
    """Runs one study to its end, or until it is told to stop."""

    def __init__(
        self,
        study: Study,
        executor: Executor,
        watch: Callable[[Snapshot], None] = lambda snapshot: None,
        extension: bool = False,
    ) -> None:
        """`extension` lets the space be wider than it was when the study was started."""
        self._study = study
        self._executor = executor
        self._watch = watch
        self._extension = extension
        self._stop = False
        self._used_up = False
        self._running: dict[int, RunningTrial] = {}
        self._ledger = Ledger(study)
        self._failures = Failures(study)
        self._pruner = make_pruner(study)
        self._checkpoints = KeptCheckpoints(study, [])
        self._free_space = FreeSpace(study)
        self._data_sha256 = ""
        self._last = ""
        self._time = TimeLimit(study.search.timeout_s)
        self._results_written_s = 0.0
        self._others_seen_s = 0.0
        self._out_of_time = False
        self._started = 0
        """Trials that this run has started."""

    @property
    def remark(self) -> str:
        """Why the search ended before the study had its number of trials; empty where it had."""
        counted, total = self._ledger.counted, self._study.search.n_trials
        if counted >= total:
            return ""
        if self._out_of_time:
            return self._time.sentence(counted, total)
        return f"the space has no further architecture after {counted} trials" if self._used_up else ""

    def stop(self) -> None:
        """Ask for a clean end: running trials are ended and queued again. May be called from a signal handler."""
        self._stop = True
        self._executor.abort()

    def run(self) -> bool:
        """Run until the study has its `n_trials` or time is up; return False if it was stopped before.

        Raises:
            InputError: the study cannot be opened as it is.
            ResnasError: another coordinator runs it, no feasible architecture exists, or too many trials failed.
        """
        try:
            return self._run()
        finally:
            self._executor.stop()

    def _run(self) -> bool:
        self._time = TimeLimit(self._study.search.timeout_s)
        make_results_folder(self._study)
        check_free(self._study)
        with claimed(self._study) as claim, writing(self._study):
            if self._extension:
                extend(self._study, claim)
            optuna_study = open_study(self._study)
            try:
                self._prepare(optuna_study, claim)
                finished = self._loop(optuna_study, claim)
            except Aborted:
                finished = False
            except BaseException:
                with contextlib.suppress(Exception):  # what cannot be written now is mended by the next start
                    self._close(optuna_study, claim)
                raise
            self._close(optuna_study, claim)
            return finished

    def _close(self, optuna_study: optuna.Study, claim: Claim) -> None:
        """End what runs, and leave nothing behind that says it still does."""
        self._executor.stop()
        self._running.clear()
        reason = OUT_OF_TIME if self._out_of_time else STOPPED
        end_unfinished(self._study, optuna_study, reason, lambda owner: owner == claim.owner)
        self._write_results(optuna_study)

    def _prepare(self, optuna_study: optuna.Study, claim: Claim) -> None:
        """Look at the data before any trial, write down what the figures depend on, take up what was left behind."""
        task = {self._study.task_name: self._study.task.model_dump(mode="json")}
        facts = self._executor.call(inspect_task, task)
        with claim.exclusive():
            check_data(self._study, optuna_study, facts["data_sha256"])
            self._data_sha256 = facts["data_sha256"]
            record_study(self._study, optuna_study, facts, self._executor.slots)
            self._end_orphans(optuna_study, claim)
            if not proposals.enqueue_start(self._study, optuna_study):
                self._last = "no baseline: the space has no feasible architecture with the residual `fixed`"
            trials = optuna_study.get_trials(deepcopy=False)
            self._ledger.update(trials)
            self._checkpoints = KeptCheckpoints(self._study, trials)
            self._checkpoints.tidy()
            for key in self._ledger.completed_keys():
                proposals.enqueue_replicates(self._study, optuna_study, self._ledger, key)

    def _end_orphans(self, optuna_study: optuna.Study, claim: Claim) -> None:
        """End the trials of coordinators that are gone."""

        def is_gone(owner: str) -> bool:
            return owner != claim.owner and not (owner and claim.is_alive(owner))

        for trial in end_unfinished(self._study, optuna_study, DIED, is_gone):
            recorded = Recorded.of(trial)
            self._checkpoints.interrupted(trial.number, recorded.key, recorded.replicate)
        self._others_seen_s = time.monotonic()

    def _loop(self, optuna_study: optuna.Study, claim: Claim) -> bool:
        while not self._stop:
            if not self._is_there_time(0.0):
                return True
            self._free_space.check()
            self._fill(optuna_study, claim)
            if not self._running and not self._ledger.running and not self._may_start():
                return True
            for event in self._executor.events(WAIT_S):
                if isinstance(event, Reported):
                    self._answer(optuna_study, event)
                else:
                    self._end(optuna_study, event)
            self._watch(self.snapshot())
            if not self._running and not self._may_start():
                time.sleep(WAIT_S)  # other coordinators train what is left
        return False

    def _fill(self, optuna_study: optuna.Study, claim: Claim) -> None:
        """Start trials in the free slots; see whether those of other coordinators still run."""
        others = {trial.number for trial in self._ledger.running} - self._running.keys()
        if others and time.monotonic() - self._others_seen_s > OTHERS_EVERY_S:
            with claim.exclusive():
                self._end_orphans(optuna_study, claim)
                self._ledger.update(optuna_study.get_trials(deepcopy=False))
        while len(self._running) < self._executor.slots and self._may_start() and self._start(optuna_study, claim):
            pass

    def _may_start(self) -> bool:
        is_any = bool(self._ledger.waiting) or not self._used_up  # what was interrupted is queued again
        return not self._stop and is_any and self._ledger.left > 0 and self._is_time_for_another()

    def _is_time_for_another(self) -> bool:
        """Whether a trial of the usual length would end in time; the first one starts all the same."""
        return self._is_there_time(self._ledger.expected_s() or 0.0 if self._started else 0.0)

    def _is_there_time(self, needed_s: float) -> bool:
        is_enough = self._time.remaining_s > needed_s
        self._out_of_time = not is_enough
        return is_enough

    def _start(self, optuna_study: optuna.Study, claim: Claim) -> bool:
        """Start the next trial; False where there is none."""
        try:
            begun = next_trial(self._study, optuna_study, claim, self._ledger, self._checkpoints)
        except UsedUp:
            self._used_up = True
            return False
        if begun is None:
            return False
        proposal, spec = begun
        search, number = self._study.search, proposal.trial.number
        where = self._executor.submit(number, spec, Limits(search.trial_timeout_s, search.memory_limit_gib))
        self._running[number] = RunningTrial(proposal)
        self._started += 1
        with contextlib.suppress(UpdateFinishedTrialError):
            set_attributes(optuna_study, proposal.trial, where=where)
        return True

    def _answer(self, optuna_study: optuna.Study, event: Reported) -> None:
        running = self._running[event.number]
        running.step = event.step
        try:
            prune = self._is_to_be_pruned(optuna_study, running, event)
        except UpdateFinishedTrialError:  # another coordinator took this one for dead
            prune = True
        self._executor.answer(event.number, prune)

    def _is_to_be_pruned(self, optuna_study: optuna.Study, running: RunningTrial, event: Reported) -> bool:
        """Write down what a trial reports, and ask the pruner."""
        trial, architecture = running.proposal.trial, running.proposal.architecture
        set_attributes(optuna_study, trial, step=event.step)
        if self._study.search.pruner == "none":
            return False
        (objective,) = self._study.objectives
        value = event.metrics.get(objective, math.nan)
        if not math.isfinite(value):
            return False  # `checked` says so when it ends
        trial.report(value, event.step)
        is_spared = architecture.key == self._ledger.baseline_key or event.step >= self._study.budget.steps
        return not is_spared and should_prune(self._pruner, self._study, optuna_study, event.number)

    def _end(self, optuna_study: optuna.Study, event: Ended) -> None:
        """Record how a trial ended."""
        running = self._running.pop(event.number)
        result = checked(self._study, event.result, self._data_sha256)
        try:
            ending = record_ending(self._study, optuna_study, running.proposal.trial, result)
        except UpdateFinishedTrialError:  # this process was asleep, and another coordinator took it for dead
            self._last = f"trial {event.number} was ended by another coordinator, and runs again there"
            return
        self._keep_checkpoint(event.number, running.proposal, ending, result)
        self._ledger.update(optuna_study.get_trials(deepcopy=False))
        outcome = result.reason or ", ".join(f"{name} {result.metrics[name]:.4g}" for name in self._study.objectives)
        self._last = f"trial {event.number} {ending}: {running.proposal.architecture.label}: {outcome}"
        if result.cause == "disk full":
            raise ResnasError(f"trial {event.number} met a full disk; it will run again when there is room: {outcome}")
        self._failures.note(ending, result.reason, event.number)
        if time.monotonic() - self._results_written_s > RESULTS_EVERY_S:
            self._write_results(optuna_study)

    def _keep_checkpoint(self, number: int, proposal: proposals.Proposal, ending: str, result: TrialResult) -> None:
        kept, key, replicate = self._checkpoints, proposal.architecture.key, proposal.replicate
        if ending == "complete":
            values = [result.metrics[name] for name in self._study.objectives]
            kept.ended(number, key, replicate, values, is_beyond(self._study.excesses(result.metrics)))
        elif ending in COUNTED:
            kept.ended(number, key, replicate)
        else:
            kept.interrupted(number, key, replicate)

    def snapshot(self) -> Snapshot:
        """Return how the search stands."""
        ledger, search = self._ledger, self._study.search
        left, expected_s = search.n_trials - ledger.counted, ledger.expected_s()
        left_s = None if expected_s is None else min(left * expected_s / self._executor.slots, self._time.remaining_s)
        return Snapshot(
            total=search.n_trials,
            endings=ledger.endings,
            running=list(self._running.values()),
            best=ledger.best,
            elapsed_s=self._time.elapsed_s,
            left_s=left_s,
            last=self._last,
        )

    def _write_results(self, optuna_study: optuna.Study) -> None:
        write_csv(table(optuna_study.get_trials(deepcopy=False)), self._study.results_folder / "results.csv")
        self._results_written_s = time.monotonic()
