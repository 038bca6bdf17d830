"""A Ray cluster of several real nodes on this machine: nodes join, share the work, and are lost in the middle of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState
from test_executor import alive, ending, spec

from resnas.errors import InputError
from resnas.executor import Ended, Limits, make_executor
from resnas.results import COUNTED, Recorded
from resnas.search import Coordinator, load_trials
from resnas.study import Study

pytestmark = pytest.mark.slow
SPACE = """
resnas: 1
architecture:
  depth: 1
  width: 16
  heads: 2
  residual: [fixed, scalar_learned, fading:Fading: {rate: [0.5, 0.9]}]
training:
  learning_rate: [1e-3, 3e-3]
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
budget: {steps: 6, batch_size: 4, validations: 2, validation_batches: 2, measure_at: [1.0]}
search: {n_trials: 6, seed: 5, executor: ray}
"""
FADING = '''
"""A topology of the user's."""

import torch

from resnas import Topology
from resnas.residual.rule import Rule


class Fading(Topology):
    rate: float = 0.9

    def build(self, sublayers, width):
        return FadingRule(sublayers, width, self.rate)


class FadingRule(Rule):
    def __init__(self, sublayers, width, rate):
        super().__init__(sublayers, width)
        self.rate = rate

    def row(self, read, sources):
        return (self.rate ** torch.arange(read - 1, -1, -1, dtype=sources[0].dtype)).view(1, read, 1)
'''


@pytest.fixture
def study_file(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "small.yaml").write_text(STUDY)
    (tmp_path / "fading.py").write_text(FADING)
    return tmp_path / "small.yaml"


@pytest.fixture
def made(cluster):
    """Return a function that makes an executor on the cluster."""
    from resnas.executor.ray import RayExecutor

    executors = []

    def make(**options):
        executors.append(RayExecutor(cluster.address, **options))
        return executors[-1]

    yield make
    for executor in executors:
        executor.stop()


def wait_for_slots(executor, count: int) -> None:
    deadline = time.monotonic() + 60
    while executor.slots != count:
        assert time.monotonic() < deadline, f"{executor.slots} slots"
        assert executor.events(0.2) == []


def seconds_of(executor, count: int, at_a_time: int, steps: int, folder: Path) -> float:
    """Return how long `count` trials take."""
    left, running = list(range(count)), 0
    started_s = time.monotonic()
    while left or running:
        while left and running < at_a_time:
            number = left.pop()
            executor.submit(number, spec(folder / str(number), steps=steps), Limits())
            running += 1
        for event in executor.events(0.2):
            if isinstance(event, Ended):
                assert event.result.state == "complete", event.result.reason
                running -= 1
            else:
                executor.answer(event.number, False)
    return time.monotonic() - started_s


@pytest.mark.timed
def test_a_node_that_joins_is_used_and_two_nodes_give_at_least_1_6_times_the_trials(cluster, made, tmp_path):
    """In turns, the best of each counting, as other work on this machine must not."""
    executor = made()
    assert executor.slots == 1
    node = cluster.add_node(num_cpus=1)
    try:
        wait_for_slots(executor, 2)
        seconds_of(executor, 4, 2, 6, tmp_path / "warm")
        one_s, two_s = [], []
        for _ in range(8):
            one_s.append(seconds_of(executor, 4, 1, 900, tmp_path / "one"))
            two_s.append(seconds_of(executor, 4, 2, 900, tmp_path / "two"))
            if len(one_s) > 1 and min(one_s) / min(two_s) >= 1.6:
                break
    finally:
        cluster.remove_node(node)
    print("four trials, seconds on one node:", one_s, "on two:", two_s, "ratio:", min(one_s) / min(two_s))
    assert min(one_s) / min(two_s) >= 1.6


def test_a_study_whose_node_dies_reaches_its_total_and_trains_nothing_twice(cluster, study_file, monkeypatch):
    monkeypatch.syspath_prepend(study_file.parent)
    node = cluster.add_node(num_cpus=1)
    overrides = ["budget.steps=300", "search.sampler=grid", f"search.ray_address={cluster.address}"]
    study = Study.load(study_file, overrides)
    executor = make_executor(study)
    wait_for_slots(executor, 2)
    killed = []

    def watch(snapshot):
        if len(snapshot.running) == 2 and snapshot.endings and not killed:
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    assert Coordinator(study, executor, watch).run()
    assert killed
    trials = load_trials(study)
    recorded = [Recorded.of(trial) for trial in trials]
    print([(one.ending, one.reason) for one in recorded])
    assert not [trial for trial in trials if trial.state == TrialState.RUNNING]
    assert len([one for one in recorded if one.ending in COUNTED]) == study.search.n_trials
    assert len([one for one in recorded if one.reason.startswith("node lost")]) == 1
    complete = [(one.key, one.replicate) for one in recorded if one.ending == "complete"]
    assert len(complete) == len(set(complete)) >= study.search.n_trials - 1
    for trial, one in zip(trials, recorded, strict=True):
        assert (
            one.ending != "complete" or (study.results_folder / "trials" / f"{trial.number:04d}" / "log.txt").exists()
        )


def test_without_any_node_trials_wait_and_go_on_when_one_joins(cluster, made, tmp_path):
    node = cluster.add_node(num_cpus=2)
    executor = made(cpus_per_trial=2)
    assert executor.slots == 1
    executor.submit(1, spec(tmp_path / "1", steps=10**6), Limits())
    time.sleep(1)
    cluster.remove_node(node, allow_graceful=False)
    assert ending(executor).result.cause == "node lost"
    assert executor.slots == 1
    assert executor.submit(2, spec(tmp_path / "2"), Limits()) == "waiting for a node"
    assert executor.events(1.0) == []
    node = cluster.add_node(num_cpus=2)
    try:
        ended = ending(executor)
        assert (ended.number, ended.result.state) == (2, "complete")
    finally:
        cluster.remove_node(node)


def test_trials_share_a_gpu(cluster, made):
    node = cluster.add_node(num_cpus=2, num_gpus=1)
    try:
        executor = made(gpus_per_trial=0.5)
        wait_for_slots(executor, 2)
        assert executor.call(os.getenv, "CUDA_VISIBLE_DEVICES") == "0"
    finally:
        cluster.remove_node(node)


def test_what_no_node_has_is_said_with_what_there_is(cluster, made):
    with pytest.raises(InputError, match=r"no node of the Ray cluster has 1 CPU, 1 GPU .*\(1 CPU, 0 GPU\)"):
        made(gpus_per_trial=1)


def test_other_versions_are_refused_in_a_sentence(cluster, made, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "__version__", "2.0.0")
    with pytest.raises(InputError, match=r"has other versions .* than this process \(Ray: 2.0.0, Python: "):
        made()


@pytest.fixture
def search(study_file):
    """Return a function that starts the command; it has ended when the test has."""
    started = []

    def start(*options: str, steps: int) -> subprocess.Popen:
        command = [sys.executable, "-m", "resnas.cli", "search", study_file.name, *options]
        process = subprocess.Popen(
            [*command, "--set", f"budget.steps={steps}"],
            cwd=study_file.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            print(process.communicate()[0])


def wait_for_log(study_file: Path) -> None:
    deadline = time.monotonic() + 180  # a Ray of its own has to start, beside two other test processes
    while not list((study_file.parent / "small").glob("trials/*/log.txt")):
        assert time.monotonic() < deadline, "no trial has started"
        time.sleep(0.1)
    time.sleep(1)


def test_ctrl_c_ends_the_command_within_seconds_and_it_goes_on_to_its_end(cluster, study_file, search, monkeypatch):
    options = ["--executor", "ray", "--cpus-per-trial", "1", "--n-trials", "1"]
    process = search(*options, "--ray-address", cluster.address, steps=4000)
    wait_for_log(study_file)
    trials = processes_with(os.environ["RAY_TMPDIR"], "multiprocessing.forkserver")
    assert len(trials) == 3  # a fork server, a trial and its guard
    started_s = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - started_s < 10
    assert process.returncode == 130, output
    assert_gone(trials)
    monkeypatch.delenv("RAY_TMPDIR")
    before = set(Path("/tmp").glob("ray-*"))
    process = search(*options, steps=4000)  # on a Ray of its own
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "Report:" in output
    assert "raylet" not in output
    assert set(Path("/tmp").glob("ray-*")) == before


def test_a_killed_command_takes_the_ray_that_it_started_along(cluster, study_file, search, monkeypatch, tmp_path):
    monkeypatch.setenv("RESNAS_TEST", str(tmp_path))  # what the command starts inherits it
    process = search("--workers", "1", steps=100_000)
    wait_for_log(study_file)
    # Not Ray's own agents, which take up to a minute to notice
    started = processes_with(str(tmp_path), "forkserver") | processes_with(str(tmp_path), "/raylet/raylet ")
    assert len(started) >= 3  # a fork server, a trial, a raylet
    process.kill()
    process.communicate(timeout=30)
    assert_gone(started)
    for agent in processes_with(str(tmp_path), "ray"):
        os.kill(agent, signal.SIGKILL)


def processes_with(text: str, part: str) -> set[int]:
    """Return the processes of this machine with a text in their environment and a part in their command line."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            if part.encode() in command and text.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def assert_gone(processes: set[int], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while [pid for pid in processes if alive(pid)]:
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.1)
