"""The coordinator against a real database, with an executor that plays back what trials say: order, pruning, resume."""

from collections import Counter

import pytest
from optuna.trial import TrialState

from resnas.executor import Ended, Reported
from resnas.results import Recorded, ending_counts
from resnas.search import Coordinator, load_trials
from resnas.study import Study
from resnas.trial import TrialResult

SPACE = """
resnas: 1
architecture:
  depth: [2, 3]
  residual: [fixed, scalar_learned]
training: {learning_rate: [1e-3, 3e-3]}
"""


class Playback:
    """Ends trials at once, or reports a value at each of four validations; stops the search after so many endings."""

    def __init__(self, slots=1, stop_after=None, accuracies=None):
        self.slots, self.stop_after, self.accuracies = slots, stop_after, accuracies
        self.running, self.pending, self.asked, self.ended = [], [], [], []
        self.pruned, self.coordinator = set(), None

    def call(self, function, *arguments):
        return {"data_sha256": "x", "baselines": {}, "versions": {}}

    def submit(self, number, spec, limits):
        self.running.append(number)
        self.pending += [(number, step) for step in (1, 2, 3, 4)] if self.accuracies else []
        return "here"

    def answer(self, number, prune):
        if prune:
            self.asked.append((number, self.step))
            self.pending = [(other, step) for other, step in self.pending if other != number]
            self.pruned.add(number)

    def abort(self):
        pass

    def stop(self):
        self.running.clear()

    def events(self, timeout_s):
        if self.stop_after is not None and len(self.ended) >= self.stop_after:
            self.coordinator.stop()
            return []
        if self.pending:
            number, self.step = self.pending.pop(0)
            accuracy = self.accuracies[number]
            return [Reported(number, self.step, {"accuracy": accuracy, "val_loss": accuracy})]
        number = self.running.pop(min(1, len(self.running) - 1))  # not the oldest first, where there are several
        self.ended.append(number)
        accuracy = self.accuracies[number] if self.accuracies else 0.5 + number / 100
        state = "pruned" if number in self.pruned else "complete"
        return [Ended(number, TrialResult(state, metrics={"accuracy": accuracy, "val_loss": 1.0}, data_sha256="x"))]


@pytest.fixture
def play(tmp_path):
    """Return a function that runs a study with a playback until it stops."""
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "played.yaml").write_text(
        "resnas: 1\nspace: space.yaml\ntask: digits\nobjectives: accuracy\n"
        "budget: {steps: 4, validations: 4}\nsearch: {sampler: random}\n"
    )

    def run(playback, *overrides):
        study = Study.load(tmp_path / "played.yaml", overrides)
        playback.coordinator = Coordinator(study, playback)
        finished = playback.coordinator.run()
        return finished, load_trials(study)

    return run


def replicates(trials) -> Counter:
    complete = [Recorded.of(trial) for trial in trials if Recorded.of(trial).ending == "complete"]
    return Counter((one.key, one.replicate) for one in complete)


@pytest.mark.parametrize(("slots", "stop_after"), [(1, 0), (1, 1), (3, 1), (3, 0), (2, 4)])
def test_replicates_survive_a_stop_each_once(play, slots, stop_after):
    settings = ("search.n_trials=6", "search.replicates=3")
    assert not play(Playback(slots, stop_after), *settings)[0]
    finished, trials = play(Playback(slots), *settings)
    assert finished
    found = replicates(trials)
    assert set(found.values()) == {1}
    assert len({key for key, _ in found}) == 2
    assert {replicate for _, replicate in found} == {0, 1, 2}
    assert len({Recorded.of(t).seed for t in trials if Recorded.of(t).ending == "complete"}) == 6


def test_pruning_follows_the_objective_and_spares_the_best_the_baseline_and_the_last_step(play):
    accuracies = [0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9, 0.2]
    playback = Playback(accuracies=accuracies)
    _, trials = play(playback, "search.n_trials=8", "search.pruner=median")
    states = {trial.number: trial.state for trial in trials}
    assert states[7] == TrialState.PRUNED
    assert states[6] == states[0] == TrialState.COMPLETE
    assert all(step < 4 for _, step in playback.asked)
    assert ending_counts(trials)["pruned"] == 1


def test_a_baseline_that_comes_late_is_spared(play):
    class BaselineLast(Playback):
        def events(self, timeout_s):
            self.pending.sort(key=lambda report: report[0] == 0)
            if self.pending and self.pending[0][0] == 0 and len(self.running) > 1:
                number = self.running.pop(0 if self.running[0] else 1)
                self.ended.append(number)
                metrics = {"accuracy": self.accuracies[number], "val_loss": 1.0}
                return [Ended(number, TrialResult("complete", metrics=metrics, data_sha256="x"))]
            return super().events(timeout_s)

    playback = BaselineLast(slots=2, accuracies=[0.1, *[0.5] * 7])
    _, trials = play(playback, "search.n_trials=8", "search.pruner=median")
    assert playback.ended[-1] == 0
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def test_a_trial_that_is_bad_at_the_last_validation_is_complete(play):
    class OneValidation(Playback):
        def submit(self, number, spec, limits):
            super().submit(number, spec, limits)
            if number == 7:
                self.pending = [(7, 4)]

    _, trials = play(OneValidation(accuracies=[*[0.5] * 7, 0.2]), "search.n_trials=8", "search.pruner=median")
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def test_the_best_after_a_resume_is_a_complete_trial(play):
    """Optuna keeps the last value that a pruned trial reported; it may be better than what complete ones ended with."""

    class Falling(Playback):
        def events(self, timeout_s):
            events = super().events(timeout_s)
            for event in events:
                if isinstance(event, Ended):
                    event.result.metrics["accuracy"] = 0.1
            return events

    accuracies = [0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4]
    _, trials = play(Falling(accuracies=accuracies), "search.n_trials=8", "search.pruner=median")
    assert trials[7].state == TrialState.PRUNED
    playback = Falling(accuracies=[*accuracies, 0.5])
    play(playback, "search.n_trials=9", "search.pruner=median")
    best = playback.coordinator.snapshot().best
    assert best is not None
    assert best.value == 0.1


def test_a_grid_can_be_enlarged_and_has_no_point_twice(play):
    grid = ("search.sampler=grid",)
    assert len(play(Playback(), *grid, "search.n_trials=3")[1]) == 3
    finished, trials = play(Playback(2), *grid, "search.n_trials=99")
    assert finished
    assert len(replicates(trials)) == len(trials) == 8


def test_nsga2_searches_after_a_small_random_generation(play):
    _, trials = play(Playback(), "search.sampler=nsga2", "search.n_trials=40")
    origins = Counter(Recorded.of(trial).origin for trial in trials)
    assert origins["nsga2"] > 30
    assert origins["random"] > 0
    assert any("nsga2:generation" in name or "generation" in name for trial in trials for name in trial.system_attrs)


def test_an_infeasible_default_gives_another_baseline(play, tmp_path):
    (tmp_path / "space.yaml").write_text(
        "resnas: 1\narchitecture:\n  width: {low: 32, high: 128, step: 16}\n  heads: 6\n"
        "  residual: [fixed, scalar_learned]\n"
    )
    _, trials = play(Playback(), "search.n_trials=2")
    first = Recorded.of(trials[0])
    assert (first.origin, first.ending) == ("baseline", "complete")
    assert first.architecture["width"] % 12 == 0


def test_queued_trials_are_not_called_running(play):
    _, trials = play(Playback(stop_after=1), "search.sampler=grid", "search.n_trials=8")
    counts = ending_counts(trials)
    assert counts["queued"] >= 6
    assert "running" not in counts
