"""The fault campaign: real searches, in which trials, coordinators, files and disks fail in every way there is.

Nothing may be lost, nothing counted twice, no process left, and every ending must have its right name.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from faults import FAULTS, FOREVER
from optuna.trial import TrialState
from scipy import stats

from resnas.errors import ResnasError
from resnas.executor import LocalExecutor
from resnas.results import COUNTED, Recorded
from resnas.search import Coordinator, load_trials
from resnas.study import Study

TESTS = Path(__file__).parent
SPACE = """
resnas: 1
architecture:
  depth: 1
  width: 16
  heads: 2
  residual:
    - fixed
    - faults:Faulty: {fault: [FAULTS]}
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
budget: {steps: 4, batch_size: 4, validations: 2, validation_batches: 2, measure_at: [1.0]}
search: {seed: 5, workers: 2, sampler: grid, n_trials: 100, max_failures: 100, max_failure_share: 1.0}
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that writes a study and loads it."""
    monkeypatch.syspath_prepend(TESTS)
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def load(*overrides, space=SPACE, study=STUDY, home=tmp_path, faults=tuple(FAULTS)) -> Study:
        (home / "space.yaml").write_text(space.replace("FAULTS", ", ".join(json.dumps(fault) for fault in faults)))
        (home / "faulty.yaml").write_text(study)
        return Study.load(home / "faulty.yaml", overrides)

    return load


@pytest.fixture(autouse=True)
def _no_process_is_left(tmp_path):
    yield
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and left_over(str(tmp_path)):
        time.sleep(0.2)
    assert not left_over(str(tmp_path))


def left_over(mark: str) -> list[str]:
    """Return the processes that have a text in their command line, and children that nobody has waited for."""
    named = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        is_zombie = process.info["status"] == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid()
        if mark in command or is_zombie:
            named.append(f"{process.info['pid']} {command}")
    return named


def table(name: str, rows) -> None:
    print(f"\n{name}")
    for row in rows:
        print("  " + " | ".join(str(cell) for cell in row))


@pytest.mark.slow
def test_every_fault_of_a_trial_has_its_name_and_the_search_goes_on(make):
    study = make("search.trial_timeout_s=15", "search.memory_limit_gib=2", "search.retries=1")
    assert Coordinator(study, LocalExecutor(2)).run()
    trials = load_trials(study)
    assert not [trial for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    reasons: dict[str, list[Recorded]] = {}
    for trial in trials:
        recorded = Recorded.of(trial)
        options = next(iter(recorded.architecture["residual"].values())) or {}
        reasons.setdefault(options.get("fault", "fixed"), []).append(recorded)
    table("faults of a trial", [(fault, [(one.ending, one.reason) for one in ones]) for fault, ones in reasons.items()])
    assert reasons.keys() == {*FAULTS, "fixed"}
    assert not left_over(FOREVER)
    for fault, ones in reasons.items():
        expected = FAULTS.get(fault, "")
        transient = expected.startswith("killed")
        assert [one.ending for one in ones] == (
            ["complete"] if not expected else ["retried", "failed"] if transient else ["failed"]
        )
        assert all(one.reason.startswith(expected) for one in ones), fault
        assert all(one.cause == expected.partition(":")[0] for one in ones), fault
    for number, trial in enumerate(trials):
        log = (study.results_folder / "trials" / f"{number:04d}" / "log.txt").read_text()
        is_exception = (
            Recorded.of(trial).reason.startswith("exception") and "its process" not in Recorded.of(trial).reason
        )
        assert ("Traceback" in log) == (is_exception or "GiB of memory" in log or "can't allocate" in log), number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("data", "exception: ValueError: a fault in the task"),
        ("metrics", "exception: ValueError: a fault in the task"),
        ("metric value", "invalid result: no finite value of accuracy"),
    ],
)
def test_faults_in_data_and_metrics_are_named(make, fault, reason):
    study = STUDY.replace("khop: {", f"faults:FaultyTask: {{fault: {fault}, ")
    loaded = make("objectives=accuracy", study=study, faults=["none"])
    assert Coordinator(loaded, LocalExecutor(2)).run()
    recorded = [Recorded.of(trial) for trial in load_trials(loaded)]
    assert {one.reason for one in recorded} == {reason}
    assert {one.ending for one in recorded} == {"failed"}


REAL = """
resnas: 1
architecture:
  depth: [1, 2]
  width: 16
  heads: 2
  residual: [fixed, scalar_learned, windowed_depth_attention: {window: [1, 2]}, full_depth_attention]
training: {learning_rate: {low: 1e-3, high: 1e-2, log: true}}
"""
RESTARTS = 8


def settings_with(sampler: str, n_trials: object) -> str:
    return STUDY.replace("sampler: grid, n_trials: 100", f"sampler: {sampler}, n_trials: {n_trials}")


def outcome(study: Study) -> list[tuple]:
    trials = [trial for trial in load_trials(study) if Recorded.of(trial).ending in COUNTED]
    rows = [(Recorded.of(trial), trial) for trial in sorted(trials, key=lambda trial: trial.datetime_complete)]
    return [(one.key, one.replicate, one.seed, one.ending, trial.values) for one, trial in rows]


def searching(study: Study, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "resnas.cli", "search", str(study.path), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_study_whose_coordinator_is_killed_again_and_again_ends_as_if_it_had_not_been(make, tmp_path):
    settings = settings_with("tpe", 12).replace("steps: 4", "steps: 300").replace("workers: 2", "workers: 1")
    (tmp_path / "whole").mkdir()
    whole = make(space=REAL, study=settings, home=tmp_path / "whole")
    assert Coordinator(whole, LocalExecutor(1)).run()
    study = make(space=REAL, study=settings)
    chance = random.Random(1)
    endings = Counter()
    for _ in range(RESTARTS):
        process = searching(study)
        delay_s = chance.uniform(2.5, 6.0)
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        endings[process.returncode] += 1
        if process.returncode == 0:
            break
    process = searching(study)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = Counter(Recorded.of(trial).ending for trial in load_trials(study))
    table("kills of the coordinator", [("exit codes", dict(endings)), ("endings", dict(found))])
    assert endings[-signal.SIGKILL] >= 5
    assert outcome(study) == outcome(whole)
    assert found["complete"] == 12
    rows = (study.results_folder / "results.csv").read_text().splitlines()
    assert len(rows) == 13


def wait_for_trials(study: Study) -> None:
    deadline = time.monotonic() + 60
    while not list(study.results_folder.glob("trials/*/log.txt")) and time.monotonic() < deadline:
        time.sleep(0.1)


def trial_processes(coordinator: psutil.Process) -> list[psutil.Process]:
    """Return the processes of trials: the fork server's children."""
    return [one for one in coordinator.children(recursive=True) if one.ppid() != coordinator.pid]


@pytest.mark.slow
def test_trials_that_are_killed_run_again_with_the_same_seeds(make):
    settings = settings_with("random", 8).replace("steps: 4", "steps: 300")
    study = make("search.retries=50", space=REAL, study=settings)
    process = searching(study, "--set", "search.retries=50")
    parent, chance, kills = psutil.Process(process.pid), random.Random(2), 0
    wait_for_trials(study)
    while process.poll() is None and kills < 12:
        time.sleep(chance.uniform(0.2, 1.5))
        with_trials = [one for one in trial_processes(parent) if process.poll() is None]
        if with_trials:
            chance.choice(with_trials).send_signal(signal.SIGKILL)
            kills += 1
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = [Recorded.of(trial) for trial in load_trials(study)]
    endings = Counter(one.ending for one in found)
    table("kills of trials", [("kills", kills), ("endings", dict(endings))])
    assert endings["complete"] == 8
    assert {one.reason for one in found if one.ending == "retried"} <= {"killed: by SIGKILL"}
    again = {(one.key, one.replicate): one.seed for one in found if one.ending == "retried"}
    assert all(again.get((one.key, one.replicate), one.seed) == one.seed for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_prompt_is_back_within_ten_seconds(make, number):
    """Also where both trials hang in C code."""
    study = make(faults=["hang in C code"], space=SPACE.replace("    - fixed\n", ""))
    process = searching(study)
    wait_for_trials(study)
    time.sleep(2)
    process.send_signal(number)
    started = time.monotonic()
    process.communicate(timeout=30)
    table("stop latency", [(number.name, f"{time.monotonic() - started:.2f} s")])
    assert process.returncode == 130
    assert time.monotonic() - started < 10
    assert not [trial for trial in load_trials(study) if trial.state == TrialState.RUNNING]


@pytest.mark.slow
def test_a_trial_that_hangs_in_c_code_ends_with_its_coordinator(make):
    study = make(faults=["hang in C code"], space=SPACE.replace("    - fixed\n", ""))
    process = searching(study)
    parent = psutil.Process(process.pid)
    wait_for_trials(study)
    time.sleep(2)
    trials = trial_processes(parent)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(trials, timeout=30)
    assert trials
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize("free_kib", [2000, 900, 400, 150])
def test_a_full_disk_stops_the_search_with_a_sentence_and_it_goes_on_when_there_is_room(make, small_disk, free_kib):
    settings = settings_with("random", "12, min_free_gib: 0.0, keep_checkpoints: 0")
    study = make(space=REAL, study=settings.replace("workers: 2", "workers: 1"), home=small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - free_kib * 1024))
    with pytest.raises(ResnasError) as caught:
        Coordinator(study, LocalExecutor(1)).run()
    table("full disk", [(f"{free_kib} KiB free", str(caught.value)[:150])])
    assert "full" in str(caught.value) or "No space left" in str(caught.value)
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    before = [trial for trial in load_trials(study) if trial.state == TrialState.COMPLETE] if free_kib > 900 else []
    assert Coordinator(study, LocalExecutor(1)).run()
    trials = load_trials(study)
    assert Counter(Recorded.of(trial).ending for trial in trials)["complete"] == 12
    assert not [trial for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    assert {trial.number: trial.values for trial in before}.items() <= {t.number: t.values for t in trials}.items()


FILES = ["results.csv", "environment.json", "study.yaml", "space.yaml", "trials/0000/result.json"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_truncated_files_are_written_again_or_not_needed(make, share):
    settings = settings_with("random", 2)
    study = make(space=REAL, study=settings)
    assert Coordinator(study, LocalExecutor(2)).run()
    sizes = {}
    for path in [study.results_folder / name for name in FILES]:
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        sizes[path] = len(whole)
    study = make("search.n_trials=3", space=REAL, study=settings)
    assert Coordinator(study, LocalExecutor(2)).run()
    assert Counter(Recorded.of(trial).ending for trial in load_trials(study))["complete"] == 3
    assert all(path.stat().st_size > 0.9 * size for path, size in sizes.items() if "trials" not in path.parts)
    command = [sys.executable, "-m", "resnas.cli", "report", str(study.path)]
    report = subprocess.run(command, capture_output=True, text=True)
    assert report.returncode == 0, report.stderr


def a_thousand_trials(study_file: str) -> None:
    """Search with an executor whose trials end at once: what is left is the coordinator, Optuna and SQLite."""
    from test_lifecycle import Scripted

    started_s, memory_kib = [], []

    class Watched(Scripted):
        def submit(self, number, spec, limits):
            started_s.append(time.perf_counter())
            memory_kib.append(psutil.Process().memory_info().rss / 2**10)
            return super().submit(number, spec, limits)

    assert Coordinator(Study.load(study_file), Watched()).run()
    print(json.dumps([started_s, memory_kib]))


@pytest.mark.timed
@pytest.mark.parametrize("sampler", ["tpe"])
def test_a_thousand_trials_cost_little_each_and_the_last_no_more_than_the_first(make, sampler):
    settings = settings_with(sampler, 1000).replace("khop: {length: 16, max_hops: 2}", "digits: {}")
    study = make(space=REAL, study=settings + "objectives: accuracy\n")
    script = f"import test_faults; test_faults.a_thousand_trials({str(study.path)!r})"  # a process of its own, not warm
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    started_s, memory_kib = json.loads(done.stdout)
    each_s = [after - before for before, after in itertools.pairwise(started_s)]
    first, last = sorted(each_s[:100])[50], sorted(each_s[-100:])[50]
    slope, _, low, high = stats.theilslopes(memory_kib[100:])
    seconds = f"{sum(each_s) / len(each_s):.3f} s each; first hundred {first:.3f}, last hundred {last:.3f}"
    table(f"1,000 trials, {sampler}", [(seconds, f"{slope:.1f} [{low:.1f}, {high:.1f}] KiB more per trial")])
    assert len(started_s) == 1000
    assert max(sum(each_s) / len(each_s), last) < 0.3
    assert last < (1.5 if sampler == "random" else 3) * first  # the first TPE trials are random; TPE fits all trials
    assert slope < 32
