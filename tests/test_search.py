"""The search with real trials and a real database: totals, resume, seeds, replicates, pruning, bad starts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from resnas.comparison import pareto_front, trained
from resnas.errors import InputError, ResnasError
from resnas.executor import LocalExecutor
from resnas.results import Recorded, metrics_of, table
from resnas.search import Coordinator, load_trials, open_study
from resnas.study import Study

SPACE = """
resnas: 1
architecture:
  depth: [1, 2]
  width: 16
  heads: 2
  residual:
    - full_depth_attention
    - fixed
    - windowed_depth_attention: {window: [1, 2], keep_embedding: [true, false]}
training:
  learning_rate: {low: 1e-3, high: 1e-2, log: true}
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
budget: {steps: 4, batch_size: 4, validations: 2, validation_batches: 2, measure_at: [1.0]}
search: {n_trials: 4, seed: 5, workers: 1}
"""


@pytest.fixture
def make(tmp_path):
    """Return a function that writes a small study and loads it with overrides."""

    def load(*overrides: str, folder: str = "a", space: str = SPACE) -> Study:
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        (home / "space.yaml").write_text(space)
        (home / "small.yaml").write_text(STUDY)
        return Study.load(home / "small.yaml", overrides)

    return load


def run(study: Study, workers: int = 1) -> list[optuna.trial.FrozenTrial]:
    assert Coordinator(study, LocalExecutor(workers)).run()
    return load_trials(study)


def outcome(trials) -> list[tuple]:
    """What must not depend on chance: who was trained, with which seeds, with what result; no wall times."""
    rows = []
    for trial in trials:
        metrics = {name: value for name, value in metrics_of(trial).items() if not name.endswith("time_s")}
        recorded = Recorded.of(trial)
        rows.append((trial.number, trial.params, recorded.key, recorded.seed, recorded.ending, trial.values, metrics))
    return rows


def test_a_study_runs_to_its_total_and_leaves_its_files(make):
    study = make()
    trials = run(study)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    first = Recorded.of(trials[0])
    assert (first.origin, next(iter(first.architecture["residual"]))) == ("baseline", "fixed")
    assert first.architecture["training"]["learning_rate"] == pytest.approx(10**-2.5)
    folder = study.results_folder
    assert {"study.db", "results.csv", "environment.json", "study.yaml", "space.yaml", "trials"} <= {
        path.name for path in folder.iterdir()
    }
    assert json.loads((folder / "environment.json").read_text())["versions"]["torch"]
    assert len((folder / "results.csv").read_text().splitlines()) == 5
    measured = json.loads((folder / "trials" / "0000" / "result.json").read_text())
    assert measured["metrics"]["val_loss"] == trials[0].value
    again = Study.load(folder / "study.yaml")
    assert again.fingerprint() == study.fingerprint()


def test_the_same_seed_gives_the_same_study_bit_for_bit_and_another_seed_does_not(make):
    first = outcome(run(make(folder="a")))
    assert outcome(run(make(folder="b"))) == first
    assert [row[2] for row in outcome(run(make("search.seed=6", folder="c")))] != [row[2] for row in first]


def test_two_workers_give_the_same_metrics_for_the_same_architectures(make):
    grid = ("search.sampler=grid", "training.learning_rate=3e-3", "search.n_trials=8")
    alone = {row[2]: row[3:] for row in outcome(run(make(*grid, folder="a")))}
    together = {row[2]: row[3:] for row in outcome(run(make(*grid, folder="b"), workers=2))}
    assert together == alone
    assert len(alone) >= 6


def test_a_stopped_study_goes_on_where_it_was_and_ends_as_if_it_had_not_stopped(make):
    whole = outcome(run(make(folder="whole")))
    study = make(folder="parts")
    executor = LocalExecutor(1)
    coordinator = Coordinator(study, executor, lambda snapshot: coordinator.stop() if snapshot.endings else None)
    assert not coordinator.run()
    trials = load_trials(study)
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.FAIL, TrialState.WAITING}
    counted = [row for row in outcome(run(study)) if row[4] == "complete"]
    assert [row[1:] for row in counted] == [row[1:] for row in whole]


def test_more_trials_extend_a_study(make):
    first = run(make("search.n_trials=2"))
    second = run(make("search.n_trials=3"))
    assert outcome(second)[:2] == outcome(first)
    assert len(second) == 3


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_running_and_the_next_run_goes_on(make, kind):
    study = make("budget.steps=3000")
    command = [sys.executable, "-m", "resnas.cli", "search", str(study.path), "--set", "budget.steps=3000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = study.results_folder / "trials" / "0000" / "log.txt"
    deadline = time.monotonic() + 60
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(kind)
    started = time.monotonic()
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - started < 10
    if kind != signal.SIGKILL:
        assert process.returncode == 130, output
        assert "go on with" in output
        assert not [trial for trial in load_trials(study) if trial.state == TrialState.RUNNING]
    study = make("budget.steps=3000", "search.n_trials=1", "search.trial_timeout_s=1")
    trials = run(study)
    assert not [trial for trial in trials if trial.state == TrialState.RUNNING]
    endings = [Recorded.of(trial).ending for trial in trials]
    assert endings[:2] == ["interrupted", "failed"]
    assert Recorded.of(trials[0]).key == Recorded.of(trials[1]).key
    assert Recorded.of(trials[0]).seed == Recorded.of(trials[1]).seed


@pytest.mark.parametrize("delay_s", [0.5, 1.5])
def test_ctrl_c_in_a_terminal_during_start_up_is_clean(make, delay_s):
    """A terminal sends it to the whole group: the fork server and the process that looks at the data as well."""
    study = make("budget.steps=3000")
    command = [sys.executable, "-m", "resnas.cli", "search", str(study.path), "--set", "budget.steps=3000"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()  # from here on the search handles signals
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=40)
    assert process.returncode == 130, first + output
    assert "Traceback" not in output
    assert "go on with" in output


def test_replicates_are_the_same_architecture_with_new_seeds(make):
    trials = run(make("search.n_trials=4", "search.replicates=2"))
    recorded = [Recorded.of(trial) for trial in trials]
    assert recorded[0].key == recorded[1].key != recorded[2].key == recorded[3].key
    assert [one.replicate for one in recorded] == [0, 1, 0, 1]
    assert len({one.seed for one in recorded}) == 4
    assert recorded[0].data_seed == recorded[2].data_seed != recorded[1].data_seed == recorded[3].data_seed


def test_infeasible_choices_are_never_trained(make):
    space = SPACE + "constraints: {max_parameters: 4500}\n"
    study = make("search.n_trials=6", space=space)
    trials = run(study)
    endings = [Recorded.of(trial).ending for trial in trials]
    assert endings.count("complete") == 6
    assert "infeasible" in endings
    for trial in trials:
        if Recorded.of(trial).ending == "complete":
            assert trial.params["architecture.depth"] == 1
        else:
            assert not (study.results_folder / "trials" / f"{trial.number:04d}").exists()
            assert "max_parameters" in Recorded.of(trial).reason


@pytest.mark.parametrize("pruner", ["asha", "median"])
def test_pruning_stops_trials_and_spares_the_baseline(make, pruner):
    trials = run(make(f"search.pruner={pruner}", "search.n_trials=12", "budget.steps=8", "budget.validations=4"))
    states = [trial.state for trial in trials]
    assert states[0] == TrialState.COMPLETE
    assert TrialState.PRUNED in states
    assert len(states) == 12


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_several_objectives_and_every_sampler(make, sampler):
    study = make(
        f"search.sampler={sampler}",
        "objectives=[val_loss, parameters]",
        "search.random_share=0.25",
        "search.n_trials=6",
    )
    trials = run(study)
    assert all(trial.values is not None and len(trial.values) == 2 for trial in trials)
    origins = [Recorded.of(trial).origin for trial in trials]
    assert origins[0] == "baseline"
    assert sampler in origins[2:]
    each = [{**row, "key": row["number"]} for row in table(trials)]
    front = pareto_front(trained(each, study.directions), study.directions)
    assert {one.rows[0]["number"] for one in front} == {trial.number for trial in open_study(study).best_trials}


def test_a_changed_space_is_refused_with_the_difference_and_nothing_is_lost(make):
    run(make("search.n_trials=1"))
    changed = make("search.n_trials=2", space=SPACE.replace("depth: [1, 2]", "depth: [1, 3]"))
    with pytest.raises(InputError, match=r"architecture\.depth: \[1, 2\] → \[1, 3\]"):
        Coordinator(changed, LocalExecutor(1)).run()
    assert len(load_trials(make())) == 1


def test_a_second_coordinator_is_refused(make):
    from resnas.search.claim import claimed
    from resnas.search.opening import make_results_folder

    study = make()
    make_results_folder(study)
    with claimed(study), pytest.raises(ResnasError, match="another search"):
        Coordinator(study, LocalExecutor(1)).run()


def test_results_that_cannot_be_written_are_refused_before_any_trial(make):
    study = make()
    study.results_folder.write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot write results to"):
        Coordinator(study, LocalExecutor(1)).run()


@pytest.mark.parametrize(
    "url", ["sqlite:////no/such/folder/study.db", "nonsense", "postgresql://user:secret@127.0.0.1:1/none"]
)
def test_a_storage_that_does_not_answer_is_one_sentence_without_the_password(make, url):
    with pytest.raises(InputError, match="storage: cannot use") as caught:
        open_study(make(f"storage={url}"))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_data_ends_the_search_before_any_trial(make, tmp_path):
    (tmp_path / "empty.txt").touch()
    study = make(f"task={{text: {{corpus: {tmp_path}/empty.txt}}}}")
    with pytest.raises(InputError, match="empty"):
        Coordinator(study, LocalExecutor(1)).run()
    assert load_trials(study) == [] or all(t.state == TrialState.WAITING for t in load_trials(study))


def test_trials_that_all_fail_end_the_search_with_their_common_cause(make):
    study = make("search.n_trials=50", "training.learning_rate=1e30", "training.gradient_clip=0", "budget.steps=40")
    with pytest.raises(ResnasError, match=r"trials in a row failed.*non-finite"):
        Coordinator(study, LocalExecutor(2)).run()
    assert not [trial for trial in load_trials(study) if trial.state == TrialState.RUNNING]


def test_gone_results_are_said(make, tmp_path):
    with pytest.raises(InputError, match="has no results yet"):
        load_trials(make())
    assert not (Path(tmp_path) / "a" / "small").exists() or not list((tmp_path / "a" / "small").glob("*.db"))


@pytest.mark.timed
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_two_workers_finish_more_trials_than_one(make):
    """Trials of a few seconds; the same grid with one and with two workers."""
    size = ("architecture.width=64", "architecture.depth=[3, 4]", "budget.batch_size=32", "budget.steps=150")
    grid = ("search.sampler=grid", "training.learning_rate=3e-3", "search.n_trials=4", *size)

    def elapsed_s(folder: str, workers: int) -> float:
        study, executor = make(*grid, folder=folder), LocalExecutor(workers)
        started = time.monotonic()
        assert Coordinator(study, executor).run()
        return time.monotonic() - started

    elapsed_s("warm", 2)
    ratios: list[float] = []
    while len(ratios) < 2 and max(ratios, default=0.0) < 1.2:  # other work on the machine spoils a round now and then
        ratios.append(elapsed_s(f"one{len(ratios)}", 1) / elapsed_s(f"two{len(ratios)}", 2))
    print("one worker over two:", ratios)
    assert max(ratios) >= 1.2, ratios
