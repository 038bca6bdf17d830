"""Trials on a real Ray cluster end as they do locally: every ending has a reason, and no process outlives it."""

import os
import signal
import time
from pathlib import Path

import pytest
from test_executor import TASK, alive, ending, spec

from resnas.architecture import Architecture
from resnas.errors import InputError
from resnas.executor import Limits, inspect_task
from resnas.executor.slot import TEMPORARY, TOKEN
from resnas.trial import TrialSpec

pytestmark = pytest.mark.slow
TELLING = '''
"""A task that tells which process its trial is, and where it found the module beside it."""

import os
from pathlib import Path

import beside_the_task
from resnas.tasks.khop import KHop


class Telling(KHop):
    note: str

    def load(self):
        Path(self.note).write_text(f"{os.getpid()} {os.getcwd()} {beside_the_task.__file__}")
        return super().load()
'''


@pytest.fixture(scope="module")
def executor(cluster, tmp_path_factory):
    from resnas.executor.ray import RayExecutor

    folder = tmp_path_factory.mktemp("code")
    (folder / "telling_task.py").write_text(TELLING)
    (folder / "beside_the_task.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        made = RayExecutor(cluster.address, names=["telling_task:Telling"])
        yield made
        made.stop()


def telling(tmp_path) -> dict:
    return {"telling_task:Telling": {**TASK["khop"], "note": str(tmp_path / "note")}}


def told(tmp_path) -> list[str]:
    """Wait for the note of a telling task."""
    deadline = time.monotonic() + 90
    while not (tmp_path / "note").exists() or not (tmp_path / "note").read_text():
        assert time.monotonic() < deadline, "the trial did not start"
        time.sleep(0.05)
    return (tmp_path / "note").read_text().split()


def gone(pid: int, timeout_s=30) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def slot_process(place: str) -> int:
    """Return the number of the process that looks after a trial."""
    return int(place.split()[-1])


def test_a_complete_trial_writes_into_its_folder(executor, tmp_path):
    executor.submit(3, spec(tmp_path / "a"), Limits())
    ended = ending(executor)
    assert (ended.number, ended.result.state) == (3, "complete"), ended.result.reason
    assert {"log.txt", "metrics.csv", "checkpoints"} <= {path.name for path in (tmp_path / "a").iterdir()}
    assert not (tmp_path / "a" / TOKEN).exists()


def test_a_pruned_trial(executor, tmp_path):
    executor.submit(1, spec(tmp_path), Limits())
    assert ending(executor, prune=True).result.state == "pruned"


def test_a_diverged_trial(executor, tmp_path):
    executor.submit(1, spec(tmp_path, steps=40, learning_rate=1e30, gradient_clip=0.0, warmup_share=0.0), Limits())
    assert ending(executor).result.cause == "non-finite loss"


def test_an_exception_has_its_traceback_in_the_log(executor, tmp_path):
    executor.submit(1, spec(tmp_path, task={"text": {"corpus": str(tmp_path / "nothing-*.txt")}}), Limits())
    assert ending(executor).result.reason.startswith("exception: InputError")
    assert "Traceback" in (tmp_path / "log.txt").read_text()


def test_a_timeout_kills_the_trial(executor, tmp_path):
    executor.submit(1, spec(tmp_path, steps=10**6, task=telling(tmp_path)), Limits(timeout_s=2.0))
    pid = int(told(tmp_path)[0])
    assert alive(pid)
    assert ending(executor).result.reason == "timeout: longer than 2 s"
    assert gone(pid)


def test_an_allocation_beyond_the_limit_is_out_of_memory(executor, tmp_path):
    wide = Architecture(depth=2, width=16384, heads=2).model_dump(mode="json")
    executor.submit(1, TrialSpec(**{**vars(spec(tmp_path)), "architecture": wide}), Limits(memory_gib=2.0))
    assert ending(executor).result.cause == "out of memory"


def test_a_killed_trial_is_named_and_its_slot_goes_on(executor, tmp_path):
    place = executor.submit(1, spec(tmp_path, steps=10**6, task=telling(tmp_path)), Limits())
    os.kill(int(told(tmp_path)[0]), signal.SIGKILL)
    assert ending(executor).result.reason.startswith("killed: by SIGKILL")
    assert executor.submit(2, spec(tmp_path), Limits()) == place
    assert ending(executor).result.state == "complete"


def test_a_killed_slot_is_a_lost_node_takes_its_trial_along_and_is_replaced(executor, tmp_path):
    place = executor.submit(1, spec(tmp_path, steps=10**6, task=telling(tmp_path)), Limits())
    pid = int(told(tmp_path)[0])
    os.kill(slot_process(place), signal.SIGKILL)
    assert ending(executor).result.cause == "node lost"
    assert gone(pid)
    assert executor.submit(2, spec(tmp_path), Limits()) == "waiting for a node"
    assert ending(executor).result.state == "complete"


def test_user_code_is_found_on_the_node_and_runs_in_the_working_folder_of_the_search(executor, tmp_path):
    executor.submit(1, spec(tmp_path, task=telling(tmp_path)), Limits())
    assert ending(executor).result.state == "complete"
    _, working_folder, module = told(tmp_path)
    assert working_folder == os.getcwd()
    assert "working_dir_files" in module


def test_a_folder_that_the_node_does_not_share_gets_its_files_at_the_ending(executor, tmp_path, monkeypatch):
    monkeypatch.setattr("resnas.executor.ray.write_token", lambda folder: "of another machine")
    place = executor.submit(1, spec(tmp_path / "a"), Limits())
    assert ending(executor).result.state == "complete"
    assert {"log.txt", "metrics.csv", "checkpoints"} <= {path.name for path in (tmp_path / "a").iterdir()}
    assert list((tmp_path / "a" / "checkpoints").iterdir())
    executor.submit(2, spec(tmp_path / "b", steps=10**6, task=telling(tmp_path)), Limits(timeout_s=2.0))
    told(tmp_path)
    assert not list((tmp_path / "b").iterdir())
    assert ending(executor).result.cause == "timeout"
    assert (tmp_path / "b" / "log.txt").exists()
    assert not list(Path("/tmp").glob(f"{TEMPORARY}{slot_process(place)}-*"))


def test_call_runs_on_a_node_and_brings_input_errors_back(executor):
    assert len(executor.call(inspect_task, TASK)["data_sha256"]) == 64
    with pytest.raises(InputError, match="nothing-here"):
        executor.call(inspect_task, {"text": {"corpus": "nothing-here-*.txt"}})


def test_a_trial_without_a_share_of_a_gpu_sees_none(executor):
    assert executor.call(os.getenv, "CUDA_VISIBLE_DEVICES") == ""


def test_a_trial_starts_within_a_second(executor, tmp_path):
    times = []
    for number in range(10):  # other work on the machine spoils one now and then
        submitted_s = time.monotonic()
        executor.submit(number, spec(tmp_path / str(number)), Limits())
        assert ending(executor).result.state == "complete"
        times.append(time.monotonic() - submitted_s)
        if times[-1] < 1.0:
            break
    print("seconds of a trial of six steps:", times)
    assert min(times) < 1.0, times
