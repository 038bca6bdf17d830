"""Lists of runs with real training: each spec once, kept, retried, interrupted and taken up again."""

import dataclasses
import json
import os
import re
import signal

import pytest

from resnas.architecture import Architecture
from resnas.errors import ResnasError
from resnas.executor import Aborted, LocalExecutor, inspect_task
from resnas.executor.events import Limits
from resnas.runs import Run, Runner
from resnas.study import Budget
from resnas.trial import TrialSpec

TASK = {"khop": {"length": 16, "max_hops": 2}}
BUDGET = {"steps": 4, "batch_size": 4, "validations": 2, "validation_batches": 2, "measure_at": [1.0]}


def make(seed: int = 0, **budget) -> Run:
    architecture = Architecture(depth=1, width=16, heads=2).model_dump(mode="json")
    spec = TrialSpec(architecture, TASK, Budget(**{**BUDGET, **budget}).model_dump(mode="json"), seed, 7, folder="")
    return Run(spec, f"seed {seed}")


@pytest.fixture(scope="module")
def data_sha256():
    return LocalExecutor(1).call(inspect_task, TASK)["data_sha256"]


class Counting(LocalExecutor):
    """The real executor, which counts what it is given, and may kill the first runs."""

    def __init__(self, kills: int = 0) -> None:
        super().__init__(1)
        self.submitted = 0
        self.checkpoints = []
        self._kills = kills

    def submit(self, number, spec, limits):
        where = super().submit(number, spec, limits)
        self.submitted += 1
        self.checkpoints.append(spec.checkpoint)
        if self.submitted <= self._kills:
            os.kill(int(re.search(r"process (\d+)", where)[1]), signal.SIGKILL)
        return where


def outcome(result):
    """What must not depend on chance or on the machine's load."""
    return {name: value for name, value in result.metrics.items() if not name.endswith("time_s")}


def test_equal_runs_are_run_once_and_kept_for_later_lists_and_processes(tmp_path, data_sha256):
    first = Counting()
    runner = Runner(first, tmp_path, Limits(), data_sha256)
    results = runner.run([make(0), make(1), make(0)])
    assert [result.state for result in results] == ["complete"] * 3
    assert results[0] is results[2]
    assert outcome(results[0]) != outcome(results[1])
    assert first.submitted == 2
    assert not list(tmp_path.glob("*/checkpoints"))
    again = Counting()
    later = Runner(again, tmp_path, Limits(), data_sha256).run([make(1), make(2), make(0)])
    assert again.submitted == 1
    assert [later[0], later[2]] == [results[1], results[0]]


@pytest.mark.parametrize("field", ["seed", "data_seed", "test"])
def test_what_metrics_depend_on_identifies_a_run_and_what_they_do_not_does_not(field):
    one = make(3)
    other = dataclasses.replace(one.spec, **{field: getattr(one.spec, field) + 1})
    assert Run(other, "").identity != one.identity
    elsewhere = dataclasses.replace(one.spec, folder="x", threads=2, checkpoint="y")
    assert Run(elsewhere, "another name").identity == one.identity
    assert make(3, steps=5).identity != one.identity


def test_results_on_other_data_or_of_another_run_or_damaged_are_not_used(tmp_path, data_sha256):
    run = make()
    (kept,) = Runner(Counting(), tmp_path, Limits(), data_sha256).run([run])
    path = tmp_path / run.identity / "result.json"
    good = json.loads(path.read_text())
    for damaged in (good | {"data_sha256": "0" * 64}, good | {"run": good["run"] | {"seed": 9}}, {}, None):
        path.write_text("" if damaged is None else json.dumps(damaged))
        executor = Counting()
        (again,) = Runner(executor, tmp_path, Limits(), data_sha256).run([run])
        assert executor.submitted == 1
        assert outcome(again) == outcome(kept)
    (failed,) = Runner(Counting(), tmp_path / "x", Limits(), "0" * 64).run([run])
    assert (failed.state, failed.cause) == ("failed", "invalid result")


@pytest.mark.parametrize(("kills", "state"), [(1, "complete"), (2, "failed")])
def test_a_killed_run_is_started_again_once_and_its_failure_is_not_kept(tmp_path, data_sha256, kills, state):
    executor = Counting(kills)
    (result,) = Runner(executor, tmp_path, Limits(), data_sha256).run([make(steps=200)])
    assert (result.state, executor.submitted) == (state, 2)
    if state == "failed":
        assert result.cause == "killed"
        (result,) = Runner(Counting(), tmp_path, Limits(), data_sha256).run([make(steps=200)])
        assert result.state == "complete"


def test_limits_hold_and_a_timeout_is_kept(tmp_path, data_sha256):
    run = make(steps=100_000)
    for submitted in (1, 0):
        executor = Counting()
        (result,) = Runner(executor, tmp_path, Limits(timeout_s=1.0), data_sha256).run([run])
        assert (result.cause, executor.submitted) == ("timeout", submitted)


def test_a_stop_ends_at_once_and_the_run_goes_on_from_its_checkpoint_bit_for_bit(tmp_path, data_sha256):
    run = make(steps=300, validations=30)
    (whole,) = Runner(Counting(), tmp_path / "whole", Limits(), data_sha256).run([run])
    executor = Counting()
    folder = tmp_path / "parts" / run.identity

    def stop_after_a_checkpoint(snapshot):
        if (folder / "checkpoints" / "last.ckpt").is_file():
            runner.stop()

    runner = Runner(executor, tmp_path / "parts", Limits(), data_sha256, stop_after_a_checkpoint)
    with pytest.raises(Aborted):
        runner.run([run])
    assert not executor._running
    assert not (folder / "result.json").exists()
    later = Counting()
    (result,) = Runner(later, tmp_path / "parts", Limits(), data_sha256).run([run])
    assert later.checkpoints == [str(folder / "checkpoints" / "last.ckpt")]
    assert outcome(result) == outcome(whole)
    assert "starting from the beginning" not in (folder / "log.txt").read_text()


def test_snapshots_count_and_say_what_runs(tmp_path, data_sha256):
    seen = []
    runner = Runner(Counting(), tmp_path, Limits(), data_sha256, seen.append)
    runner.expected = 5
    runner.run([make(0), make(1)], "pairs")
    assert {one.stage for one in seen} == {"pairs"}
    assert {one.expected for one in seen} == {5}
    assert (seen[-1].done, seen[-1].last) == (2, "seed 1: complete")
    assert seen[-1].left_s > 0
    assert max(running.step for one in seen for running in one.running) >= 2


def test_results_that_cannot_be_written_are_one_sentence(tmp_path, data_sha256):
    run = make()
    executor = Counting()

    def block(snapshot):
        path = tmp_path / run.identity / "result.json"
        path.mkdir(parents=True, exist_ok=True)

    runner = Runner(executor, tmp_path, Limits(), data_sha256, block)
    with pytest.raises(ResnasError, match="cannot write to"):
        runner.run([run])
