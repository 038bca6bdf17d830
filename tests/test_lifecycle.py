"""What becomes of a study when trials fail, are killed or take too long, and when the coordinator dies at any write."""

import json
from collections import Counter
from dataclasses import replace

import optuna
import pytest
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import TrialState
from test_coordinator import SPACE

from resnas.errors import InputError, ResnasError
from resnas.executor import Ended, Reported
from resnas.results import COUNTED, Recorded, ending_counts
from resnas.search import Coordinator, load_trials, open_study, time_limit
from resnas.search.samplers import ToldStudy, make_sampler
from resnas.study import Study
from resnas.trial import TrialResult

WIDE = SPACE.replace("[1e-3, 3e-3]", "{low: 1e-4, high: 1e-2, log: true}")


def measured(spec, times=1) -> TrialResult:
    """A result that depends on what was trained with which seed, and on nothing else."""
    depth, seed = spec.architecture["depth"], spec.seed
    metrics = {"accuracy": 0.5 + depth / 100 + seed / 2**40, "val_loss": 1 + seed / 2**31, "step_time_s": depth / 100}
    return TrialResult("complete", metrics=metrics, data_sha256="x")


class Scripted:
    """Ends every trial at once, as a function of its spec and of how often that spec was run says."""

    def __init__(self, play=measured, slots=1, reports=()):
        self.slots, self.play, self.reports = slots, play, reports
        self.queue, self.specs, self.times, self.prune = [], {}, Counter(), {}

    def call(self, function, *arguments):
        return {"data_sha256": "x", "baselines": {}, "versions": {}}

    def submit(self, number, spec, limits):
        identity = json.dumps([spec.architecture, spec.seed])
        self.times[identity] += 1
        self.specs[number] = (spec, self.times[identity])
        self.queue += [Reported(number, step, {"val_loss": value, "accuracy": value}) for step, value in self.reports]
        self.queue.append(number)
        return "here, process 1"

    def answer(self, number, prune):
        if prune:
            self.queue = [one for one in self.queue if getattr(one, "number", None) != number]
            self.prune[number] = True

    def events(self, timeout_s):
        if not self.queue:
            return []
        event = self.queue.pop(0)
        if isinstance(event, Reported):
            return [event]
        result = self.play(*self.specs[event])
        return [Ended(event, replace(result, state="pruned", reason="pruned") if self.prune.get(event) else result)]

    def abort(self):
        pass

    def stop(self):
        self.queue.clear()


@pytest.fixture
def clock(monkeypatch):
    """The clock of a search's time limit, which stands still but for `pass_s`: a slow machine uses up no time."""

    class Clock:
        now_s = 0.0

        def monotonic(self):
            return self.now_s

        def pass_s(self, seconds):
            self.now_s += seconds

    monkeypatch.setattr(time_limit, "time", ticking := Clock())
    return ticking


@pytest.fixture
def search(tmp_path):
    """Return a function that runs a study and gives its coordinator and trials."""

    def run(executor, *overrides, space=SPACE, folder="a"):
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        (home / "space.yaml").write_text(space)
        (home / "study.yaml").write_text(
            "resnas: 1\nspace: space.yaml\ntask: digits\nobjectives: accuracy\n"
            "budget: {steps: 4, validations: 4}\nsearch: {sampler: random, n_trials: 6}\n"
        )
        study = Study.load(home / "study.yaml", overrides)
        coordinator = Coordinator(study, executor)
        assert coordinator.run()
        return coordinator, load_trials(study)

    return run


def recorded(trials, *endings) -> list[Recorded]:
    every = [Recorded.of(trial) for trial in trials]
    return [one for one in every if not endings or one.ending in endings]


def fails(cause, detail="because"):
    return TrialResult.failure(cause, detail)


def depth_3_needs_too_much(spec, times):
    return fails("out of memory") if spec.architecture["depth"] == 3 else measured(spec)


@pytest.mark.parametrize("cause", ["killed", "node lost"])
def test_what_was_not_the_trial_s_doing_is_tried_again_with_the_same_seeds(search, cause):
    executor = Scripted(lambda spec, times: fails(cause) if times <= 2 else measured(spec))
    _, trials = search(executor, "search.retries=2", "search.n_trials=4", "search.max_failures=99")
    complete, again = recorded(trials, "complete"), recorded(trials, "retried")
    assert len(complete) == 4
    assert len(again) == 8
    assert {one.attempt for one in complete} == {3}
    assert Counter((one.key, one.replicate, one.seed) for one in again) == Counter(
        {(one.key, one.replicate, one.seed): 2 for one in complete}
    )
    assert {one.cause for one in again} == {cause}


def test_retries_end(search):
    executor = Scripted(lambda spec, times: fails("killed"))
    _, trials = search(executor, "search.retries=1", "search.n_trials=3", "search.max_failures=99")
    assert ending_counts(trials)["failed"] == 3
    assert ending_counts(trials)["retried"] == 3


@pytest.mark.parametrize("cause", ["out of memory", "timeout", "exception", "non-finite loss", "invalid result"])
def test_what_was_the_trial_s_doing_is_not_tried_again(search, cause):
    executor = Scripted(lambda spec, times: fails(cause) if spec.architecture["depth"] == 3 else measured(spec))
    coordinator, trials = search(executor, "search.n_trials=30", "search.replicates=2", "search.duplicates=redraw")
    assert max(executor.times.values()) == 1
    failed = recorded(trials, "failed")
    assert len(failed) == len({one.key for one in failed}) == 4
    assert {one.reason for one in failed} == {f"{cause}: because"}
    assert Counter(one.key for one in recorded(trials, "complete")) == Counter(
        {one.key: 2 for one in recorded(trials, "complete")}
    )
    assert len(recorded(trials, "complete")) == 8
    assert "no further architecture after 12 trials" in coordinator.remark
    assert all(one.reason for one in recorded(trials, "skipped"))


def test_a_duplicate_is_a_replicate_or_drawn_again_as_the_study_says(search):
    _, trials = search(Scripted(), "search.n_trials=12", folder="a")
    pairs = Counter((one.key, one.replicate) for one in recorded(trials, "complete"))
    assert set(pairs.values()) == {1}
    assert len({key for key, _ in pairs}) < 12
    coordinator, trials = search(Scripted(), "search.n_trials=12", "search.duplicates=redraw", folder="b")
    assert len({one.key for one in recorded(trials, "complete")}) == len(recorded(trials, "complete")) == 8
    assert coordinator.remark


def test_samplers_are_shown_failures_as_the_worst_and_the_record_is_left_alone(search, tmp_path):
    executor = Scripted(depth_3_needs_too_much)
    search(executor, "search.n_trials=12", "search.max_failures=99", "search.max_failure_share=1", space=WIDE)
    study = Study.load(tmp_path / "a" / "study.yaml")
    optuna_study = open_study(study)
    told = ToldStudy(optuna_study.study_name, optuna_study._storage)
    real = {trial.number: trial for trial in optuna_study.trials}
    shown = {trial.number: trial for trial in told._get_trials(deepcopy=False)}
    worst = min(trial.value for trial in real.values() if trial.state == TrialState.COMPLETE)
    failed = [number for number, trial in real.items() if trial.state == TrialState.FAIL]
    assert failed
    assert {shown[number].value for number in failed} == {worst}
    assert all(real[number].value is None for number in failed)
    assert all(shown[number].value == real[number].value for number in real if number not in failed)


def test_a_sampler_learns_to_avoid_what_fails(search):
    """Without being told, TPE would draw the failing depth about as often as the other one."""
    executor = Scripted(depth_3_needs_too_much)
    options = ("search.n_trials=60", "search.sampler=tpe", "search.random_share=0.4", "search.max_failures=99")
    _, trials = search(executor, *options, "search.max_failure_share=1", space=WIDE)
    drawn = [one.architecture["depth"] for one in recorded(trials, *COUNTED) if one.origin == "tpe"]
    assert len(drawn) > 30
    assert drawn.count(3) < len(drawn) / 4


def test_too_many_failures_in_a_row_end_the_search_with_their_causes(search):
    executor = Scripted(lambda spec, times: fails("exception", "no such thing"))
    with pytest.raises(ResnasError, match=r"3 trials in a row failed: exception: no such thing \(3 times\)"):
        search(executor, "search.max_failures=3", space=WIDE)


def test_too_large_a_share_of_failures_ends_the_search(search):
    turns = iter(range(10**6))
    executor = Scripted(lambda spec, times: fails("timeout") if next(turns) % 3 else measured(spec))
    with pytest.raises(ResnasError, match=r"of \d+ trials failed, more than search.max_failure_share allows: timeout"):
        search(executor, "search.max_failures=5", "search.n_trials=100", space=WIDE)


def test_limits_make_trials_infeasible_for_optuna_and_never_the_best(search):
    coordinator, trials = search(Scripted(), "search.n_trials=8", "limits={step_time_s: {max: 0.02}}")
    slow = [trial for trial in trials if trial.user_attrs["step_time_s"] > 0.02]
    assert slow
    assert all(max(trial.constraints.values()) > 0 for trial in slow)
    best = coordinator.snapshot().best
    assert best is not None
    assert trials[best.number].user_attrs["step_time_s"] <= 0.02
    assert max(trials, key=lambda trial: trial.value) in slow


def test_a_result_without_what_is_asked_for_has_failed(search):
    executor = Scripted(lambda spec, times: replace(measured(spec), metrics={"accuracy": float("nan")}))
    _, trials = search(executor, "search.n_trials=2", space=WIDE)
    assert {one.reason for one in recorded(trials)} == {"invalid result: no finite value of accuracy"}


def test_a_result_on_other_data_has_failed(search):
    executor = Scripted(lambda spec, times: replace(measured(spec), data_sha256="y" * 64))
    _, trials = search(executor, "search.n_trials=2", space=WIDE)
    assert all("trained on other data" in one.reason for one in recorded(trials, "failed"))
    assert not recorded(trials, "complete")


def test_time_is_up(search, clock):
    executor = Scripted()
    executor.events = lambda timeout_s: clock.pass_s(0.3) or []  # trials that never end
    coordinator, trials = search(executor, "search.timeout_s=0.5", "search.n_trials=3")
    assert "is up after 0 of 3 trials" in coordinator.remark
    assert [trial.state for trial in trials] == [TrialState.FAIL, TrialState.WAITING]
    assert "time of the search was up" in Recorded.of(trials[0]).reason
    coordinator, trials = search(Scripted(), "search.n_trials=3")
    assert len(recorded(trials, "complete")) == 3


def test_pruning_one_replicate_prunes_the_architecture(search):
    """Reports fall below the median from the seventh architecture on; its other replicates are not trained."""
    values = iter([0.5] * 12 + [0.1] * 100)
    executor = Scripted(reports=[(1, 0.0), (2, 0.0)])
    submit = executor.submit

    def submit_with_value(number, spec, limits):
        value = next(values)
        executor.reports = [(1, value), (2, value)]
        return submit(number, spec, limits)

    executor.submit = submit_with_value
    options = ("search.replicates=2", "search.pruner=median", "search.n_trials=14")
    _, trials = search(executor, *options, space=WIDE)
    pruned = recorded(trials, "pruned")
    assert len(pruned) == len({one.key for one in pruned}) == 2
    skipped = [one for one in recorded(trials, "skipped") if "architecture was pruned before" in one.reason]
    assert len(skipped) >= 1
    assert not {one.key for one in pruned} & {one.key for one in recorded(trials, "complete")}


def test_the_pruner_compares_means_over_replicates(search, tmp_path):
    from resnas.search.pruning import ByArchitecture

    values = iter(range(100))
    executor = Scripted()
    submit = executor.submit

    def submit_with_value(number, spec, limits):
        executor.reports = [(1, float(next(values)))]
        return submit(number, spec, limits)

    executor.submit = submit_with_value
    options = ("search.replicates=2", "search.pruner=median", "search.n_trials=4", "objectives={accuracy: maximize}")
    search(executor, *options, space=WIDE)
    optuna_study = open_study(Study.load(tmp_path / "a" / "study.yaml", options))
    shown = ByArchitecture(optuna_study.study_name, optuna_study._storage).get_trials()
    assert [trial.intermediate_values for trial in shown] == [{1: 0.5}, {1: 2.5}]


class PowerLoss(BaseException):
    """The machine is gone."""


WRITES = [
    "create_new_trial",
    "set_trial_param",
    "set_trial_state_values",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "set_trial_intermediate_value",
    "set_study_user_attr",
]


class Power:
    """Lets the n-th write to the storage, and everything after it, fail."""

    def __init__(self, monkeypatch):
        self.left = None
        self.writes = 0
        for name in WRITES:
            monkeypatch.setattr(_CachedStorage, name, self._guarded(getattr(_CachedStorage, name)))

    def _guarded(self, method):
        def write(*arguments, **options):
            self.writes += 1
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise PowerLoss
            return method(*arguments, **options)

        return write


def outcome(trials) -> list[tuple]:
    """Return what was trained, in the order in which it ended, and with what result."""
    counted = [trial for trial in trials if Recorded.of(trial).ending in COUNTED]
    rows = [(Recorded.of(trial), trial.values) for trial in sorted(counted, key=lambda trial: trial.datetime_complete)]
    return [(one.key, one.replicate, one.seed, one.origin, one.ending, values) for one, values in rows]


OPTIONS = ("search.replicates=2", "search.n_trials=5", "search.sampler=tpe", "search.random_share=0.5")


def sometimes_killed(spec, times):
    return fails("killed") if times == 1 and spec.seed % 3 == 0 else measured(spec)


def crash_everywhere(search, power, every):
    """Cut the power at every so manyth write of a study, start it again, and compare with a study left in peace."""
    _, trials = search(Scripted(sometimes_killed), *OPTIONS, space=WIDE, folder="whole")
    expected, total = outcome(trials), power.writes
    assert len(expected) == 5
    for cut in range(3, total, every):
        power.left = cut
        with pytest.raises(PowerLoss):
            search(Scripted(sometimes_killed), *OPTIONS, space=WIDE, folder=f"cut{cut}")
        power.left = None
        _, trials = search(Scripted(measured), *OPTIONS, space=WIDE, folder=f"cut{cut}")
        assert not [trial for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)][1:]
        assert outcome(trials) == expected, f"power lost at write {cut}"
    return total


def test_power_lost_at_a_write_changes_nothing(search, monkeypatch):
    assert crash_everywhere(search, Power(monkeypatch), every=61) > 61  # the power was cut more than once


@pytest.mark.slow
def test_power_lost_at_many_writes_changes_nothing(search, monkeypatch):
    total = crash_everywhere(search, Power(monkeypatch), every=6)
    print("writes, every sixth of which was the last:", total)
    assert total > 61


def test_a_result_left_by_another_study_is_not_taken_for_a_trial_s(search, tmp_path):
    search(Scripted(), "search.n_trials=2", folder="a")
    (tmp_path / "a" / "study" / "study.db").unlink()

    class Dies(Scripted):
        def events(self, timeout_s):
            raise PowerLoss

    with pytest.raises(PowerLoss):
        search(Dies(), "search.n_trials=2", "search.seed=9", folder="a")
    executor = Scripted()
    search(executor, "search.n_trials=2", "search.seed=9", folder="a")
    assert len(executor.specs) == 2


def test_optuna_reads_what_we_wrote(search, tmp_path):
    search(Scripted(), "search.n_trials=2")
    found = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/a/study/study.db")
    assert len(found.trials) == 2
    assert found.best_value == max(trial.value for trial in found.trials)
    assert make_sampler(Study.load(tmp_path / "a" / "study.yaml"), 0, 0)[0] == "random"


def test_a_result_that_was_written_before_the_coordinator_died_is_recorded_and_not_trained_again(search, monkeypatch):
    tell = _CachedStorage.set_trial_state_values

    def dies(self, trial_id, state, values=None):
        if state == TrialState.COMPLETE:
            raise PowerLoss
        return tell(self, trial_id, state, values)

    with monkeypatch.context() as patched:
        patched.setattr(_CachedStorage, "set_trial_state_values", dies)
        with pytest.raises(PowerLoss):
            search(Scripted(), "search.n_trials=2", "limits={step_time_s: {max: 0.02}}")
    executor = Scripted()
    _, trials = search(executor, "search.n_trials=2", "limits={step_time_s: {max: 0.02}}")
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2
    assert list(executor.specs) == [1]
    assert Recorded.of(trials[0]).key
    assert trials[0].constraints


def widen(tmp_path, space, *options):
    (tmp_path / "a" / "space.yaml").write_text(space)
    study = Study.load(tmp_path / "a" / "study.yaml", ["search.n_trials=8", *options])
    assert Coordinator(study, Scripted(), extension=True).run()
    return load_trials(study)


def test_a_space_may_grow_and_the_old_trials_count(search, tmp_path):
    _, before = search(Scripted(), "search.n_trials=4", "search.sampler=tpe")
    wider = """
resnas: 1
architecture:
  depth: [2, 3, 4]
  residual: [fixed, scalar_learned, full_depth_attention]
training: {learning_rate: {low: 1e-4, high: 1e-2, log: true}, mixing_lr_multiplier: [1, 10]}
"""
    with pytest.raises(InputError, match=r"architecture.depth: \[2, 3\] → \[2, 3, 4\].*--new-study NAME.*--extend"):
        search(Scripted(), space=wider)
    after = widen(tmp_path, wider, "search.sampler=tpe", "search.random_share=0.2")
    assert [(trial.number, trial.value) for trial in after[:4]] == [(trial.number, trial.value) for trial in before]
    assert len(recorded(after, *COUNTED)) == 8
    assert all(trial.params["training.mixing_lr_multiplier"] == 1 for trial in after[:4])
    assert {one.origin for one in recorded(after)} >= {"tpe"}
    kept = json.loads((tmp_path / "a" / "study" / "environment.json").read_text())["extensions"]
    assert kept[0]["trials_before"] == 4
    assert any("architecture.depth" in line for line in kept[0]["changes"])
    names = optuna.get_all_study_names(f"sqlite:///{tmp_path}/a/study/study.db")
    assert names == ["study", "study [2]"]
    again = widen(tmp_path, wider.replace("[2, 3, 4]", "[2, 3, 4, 5]"), "search.n_trials=9")
    assert len(recorded(again, *COUNTED)) == 9


@pytest.mark.parametrize(
    ("space", "options", "words"),
    [
        (SPACE.replace("[2, 3]", "[2]"), (), "may only grow"),
        (SPACE, ("budget.steps=8",), "only the space of a study may change, not budget.steps: 4 → 8"),
        (SPACE, ("search.seed=4",), "only the space"),
    ],
)
def test_what_would_make_trials_incomparable_is_no_extension(search, tmp_path, space, options, words):
    _, before = search(Scripted(), "search.n_trials=8", "search.duplicates=redraw")
    with pytest.raises(InputError, match=words):
        widen(tmp_path, space, *options)
    assert [trial.values for trial in load_trials(Study.load(tmp_path / "a" / "study.yaml"))] == [
        trial.values for trial in before
    ]


def test_an_extension_that_was_cut_short_is_made_again(search, tmp_path, monkeypatch):
    search(Scripted(), "search.n_trials=4")
    power = Power(monkeypatch)
    for cut in range(9):
        power.left = cut
        with pytest.raises(PowerLoss):
            widen(tmp_path, SPACE.replace("[2, 3]", "[2, 3, 4]"))
        power.left = None
    assert len(recorded(widen(tmp_path, SPACE.replace("[2, 3]", "[2, 3, 4]")), *COUNTED)) == 8
