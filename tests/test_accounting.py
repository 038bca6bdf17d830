"""What counts as what when replicates, pruning, limits, retries and extensions meet: found by looking for trouble."""

import dataclasses
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from test_coordinator import Playback, play
from test_lifecycle import SPACE, WIDE, Scripted, clock, fails, measured, recorded, search, widen

from resnas.errors import InputError
from resnas.executor import Reported
from resnas.results import COUNTED, Recorded
from resnas.search import Coordinator, load_trials, open_study, opening
from resnas.search.pruning import ByArchitecture
from resnas.study import Study

__all__ = ["clock", "play", "search"]  # fixtures


class Reporting(Scripted):
    """Reports, for each trial, what a function of its number and spec says, at two validations."""

    def __init__(self, value, **options):
        super().__init__(**options)
        self.value = value

    def submit(self, number, spec, limits):
        self.reports = [(step, self.value(number, spec)) for step in (1, 2)]
        return super().submit(number, spec, limits)


def open_again(tmp_path) -> optuna.Study:
    return optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/a/study/study.db")


def test_a_report_without_the_objective_is_not_the_end_of_the_search(search):
    executor = Scripted(reports=[(1, 0.1)])
    events = executor.events

    def without(timeout_s):
        found = events(timeout_s)
        return [dataclasses.replace(one, metrics={}) if isinstance(one, Reported) else one for one in found]

    executor.events = without
    _, trials = search(executor, "search.pruner=median")
    assert len(recorded(trials, "complete")) == 6


@pytest.mark.parametrize("pruner", ["none", "median"])
def test_a_trial_that_another_coordinator_has_ended_does_not_end_the_search(search, tmp_path, pruner):
    executor = Scripted(reports=[(1, 0.1)])
    events, done = executor.events, []

    def ended_meanwhile(timeout_s):
        found = events(timeout_s)
        if found and not done:
            done.append(found)
            open_again(tmp_path).tell(found[0].number, state=TrialState.FAIL)
        return found

    executor.events = ended_meanwhile
    _, trials = search(executor, f"search.pruner={pruner}")
    assert len(recorded(trials, "complete")) == 6


def test_a_trial_that_was_ended_as_it_was_started_does_not_end_the_search(search, tmp_path):
    executor = Scripted()
    submit, done = executor.submit, []

    def ended_meanwhile(number, spec, limits):
        where = submit(number, spec, limits)
        if not done:
            done.append(number)
            open_again(tmp_path).tell(number, state=TrialState.FAIL)
        return where

    executor.submit = ended_meanwhile
    _, trials = search(executor)
    assert len(recorded(trials, "complete")) == 6


def test_the_checkpoint_of_the_best_trial_within_the_limits_is_kept(search, tmp_path):
    executor = Scripted()
    submit = executor.submit

    def with_checkpoint(number, spec, limits):
        folder = Path(spec.folder) / "checkpoints"
        folder.mkdir(parents=True)
        (folder / "last.ckpt").write_text("x")
        return submit(number, spec, limits)

    executor.submit = with_checkpoint
    options = ("search.keep_checkpoints=1", "limits={step_time_s: {max: 0.025}}")
    coordinator, _ = search(executor, *options)
    best = coordinator.snapshot().best
    assert best is not None
    kept = [path.parent.name for path in (tmp_path / "a/study/trials").glob("*/checkpoints")]
    assert kept == [f"{best.number:04d}"]
    used = Study.load(tmp_path / "a/study/study.yaml")
    assert used.fingerprint() == Study.load(tmp_path / "a/study.yaml", options).fingerprint()
    assert used.limits


def test_a_pruned_architecture_is_not_trained_again(search):
    executor = Reporting(lambda number, spec: 0.1 if number >= 6 and spec.architecture["depth"] == 3 else 0.6)
    _, trials = search(executor, "search.pruner=median", "search.n_trials=40")
    assert set(Counter(one.key for one in recorded(trials, "pruned")).values()) == {1}


def test_every_replicate_of_the_baseline_is_spared(search):
    executor = Reporting(lambda number, spec: 0.5 if number < 11 else 0.1)
    search(executor, "search.pruner=median", "search.n_trials=10")
    _, trials = search(executor, "search.pruner=median", "search.n_trials=14", "search.replicates=4")
    key = Recorded.of(trials[0]).key
    baseline = [one for one in recorded(trials, *COUNTED) if one.key == key]
    assert {one.replicate for one in baseline} >= {0, 1, 2, 3}
    assert {one.ending for one in baseline} == {"complete"}


def test_successive_halving_compares_means_of_what_replicates_had_at_a_rung(search, tmp_path):
    values = iter([1.0, 3.0, 5.0, 7.0, 4.0, 6.0])
    executor = Reporting(lambda number, spec: 0.0)
    submit = executor.submit
    executor.value = lambda number, spec: executor.now

    def with_value(number, spec, limits):
        executor.now = next(values)
        return submit(number, spec, limits)

    executor.submit = with_value
    options = ("search.replicates=2", "search.pruner=asha", "search.n_trials=4")
    search(executor, *options, space=WIDE)
    optuna_study = open_study(Study.load(tmp_path / "a/study.yaml", options))
    shown = ByArchitecture(optuna_study.study_name, optuna_study._storage).get_trials()
    assert [trial.intermediate_values[1] for trial in shown] == [2.0, 6.0]
    assert shown[1].system_attrs["completed_rung_0"] == 6.0  # the baseline is spared, and has no rung


def test_a_grid_with_replicates_finishes_one_architecture_after_the_other(search):
    _, trials = search(Scripted(), "search.sampler=grid", "search.replicates=3", "search.n_trials=6")
    assert list(Counter(one.key for one in recorded(trials, "complete")).values()) == [3, 3]


def test_more_replicates_can_be_asked_for_later(search):
    search(Scripted(), "search.sampler=grid", "search.n_trials=8")
    coordinator, trials = search(Scripted(), "search.sampler=grid", "search.n_trials=16", "search.replicates=2")
    assert set(Counter(one.key for one in recorded(trials, "complete")).values()) == {2}
    assert len(recorded(trials, "complete")) == 16
    assert not coordinator.remark


def test_a_space_of_which_one_architecture_is_left_goes_on_with_its_replicates(search):
    def one_works(spec, times):
        architecture = spec.architecture
        is_it = architecture["depth"] == 2 and architecture["training"]["learning_rate"] == 1e-3
        return measured(spec) if is_it and "fixed" in architecture["residual"] else fails("exception")

    options = ("search.n_trials=20", "search.max_failures=100", "search.max_failure_share=1.0")
    _, trials = search(Scripted(one_works), *options)
    assert len(recorded(trials, *COUNTED)) == 20
    assert len(recorded(trials, "failed")) == 7


def test_failures_that_were_made_good_do_not_count_in_the_share(search):
    executor = Scripted(lambda spec, times: fails("killed") if times == 1 else measured(spec))
    _, trials = search(executor, "search.n_trials=20", "search.max_failures=4")
    assert len(recorded(trials, "complete")) == 20


def test_an_interruption_after_the_grid_is_used_up_has_its_own_reason(play):
    class Stopped(Playback):
        turns = 0

        def events(self, timeout_s):
            if len(self.ended) < 7:
                return super().events(timeout_s)
            self.turns += 1
            if self.turns > 2:
                self.coordinator.stop()
            return []

    _, trials = play(Stopped(slots=2), "search.sampler=grid", "search.n_trials=50")
    reasons = [one.reason for one in recorded(trials, "interrupted")]
    assert reasons == ["interrupted: the search was stopped"]


def test_a_run_that_is_shorter_than_a_trial_starts_one_all_the_same(search, clock):
    def slow(spec, times):
        time.sleep(0.6)  # what the database says that a trial takes
        clock.pass_s(0.6)
        return measured(spec)

    executor = Scripted(slow)
    search(executor, "search.n_trials=2")
    coordinator, trials = search(executor, "search.n_trials=4", "search.timeout_s=0.5")
    assert len(recorded(trials, "complete")) == 3
    assert "is up after 3 of 4 trials" in coordinator.remark
    _, trials = search(executor, "search.n_trials=6", "search.timeout_s=0.9")
    assert len(recorded(trials, "complete")) == 4, "the second would not have ended in time"


@pytest.mark.parametrize("name", ["a/b", "", ".", "../x", "a b"])
def test_a_new_study_needs_a_name(tmp_path, name):
    from resnas.cli.searching import _copied

    (tmp_path / "s.yaml").write_text("x: 1")
    with pytest.raises(InputError, match="--new-study"):
        _copied(tmp_path / "s.yaml", name)


def test_an_extension_of_a_study_that_was_not_begun_is_none(search, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(opening, "_check_fingerprint", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            search(Scripted(), "search.n_trials=2")
    assert len(recorded(widen(tmp_path, SPACE), "complete")) == 8


def test_what_is_queued_is_kept_by_an_extension(search, tmp_path):
    space = SPACE.replace("depth: [2, 3]", "depth: [2, 3]\n  width: 48")
    search(Scripted(), "search.n_trials=4", "search.replicates=3", space=space)
    trials = widen(tmp_path, space.replace("width: 48", "width: [48, 64]"), "search.replicates=3")
    assert not recorded(trials, "skipped")
    begun = Counter(one.key for one in recorded(trials, "complete"))
    assert sorted(begun.values()) == [2, 3, 3]


def test_what_failed_may_leave_the_space(search, tmp_path):
    def depth_3_fails(spec, times):
        return fails("exception") if spec.architecture["depth"] == 3 else measured(spec)

    search(Scripted(depth_3_fails), "search.n_trials=6", "search.sampler=grid")
    trials = widen(tmp_path, SPACE.replace("[2, 3]", "[2, 4]"), "search.sampler=grid")
    assert len(recorded(trials, *COUNTED)) == 8
    again = Study.load(tmp_path / "a/study.yaml", ["search.n_trials=9", "search.sampler=random"])
    assert Coordinator(again, Scripted()).run()
    assert len(recorded(load_trials(again), *COUNTED)) == 9
