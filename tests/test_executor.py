"""The local executor with real processes: every ending has a reason, and no process outlives it."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from resnas.architecture import Architecture, Training
from resnas.errors import InputError
from resnas.executor import Ended, Limits, LocalExecutor, Reported, inspect_task
from resnas.study import Budget
from resnas.trial import TrialSpec

TASK = {"khop": {"length": 16, "max_hops": 2}}


def spec(folder, steps=6, task=TASK, **training) -> TrialSpec:
    architecture = Architecture(depth=1, width=16, heads=2, training=Training(**training))
    budget = Budget(steps=steps, batch_size=4, validations=2, validation_batches=2, measure_at=[1.0])
    return TrialSpec(architecture.model_dump(mode="json"), task, budget.model_dump(mode="json"), 1, 2, str(folder))


@pytest.fixture(scope="module")
def executor():
    made = LocalExecutor(workers=2)
    yield made
    made.stop()


def ending(executor, prune=False, timeout_s=120) -> Ended:
    """Answer reports until a trial ends."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for event in executor.events(0.2):
            if isinstance(event, Ended):
                return event
            assert isinstance(event, Reported)
            executor.answer(event.number, prune)
    raise AssertionError("the trial did not end")


def test_a_complete_trial(executor, tmp_path):
    executor.submit(3, spec(tmp_path), Limits())
    ended = ending(executor)
    assert (ended.number, ended.result.state) == (3, "complete")
    assert (tmp_path / "log.txt").exists()


def test_a_pruned_trial(executor, tmp_path):
    executor.submit(1, spec(tmp_path), Limits())
    assert ending(executor, prune=True).result.state == "pruned"


def test_a_diverged_trial_fails_with_that_reason(executor, tmp_path):
    executor.submit(1, spec(tmp_path, steps=40, learning_rate=1e30, gradient_clip=0.0, warmup_share=0.0), Limits())
    result = ending(executor).result
    assert result.state == "failed"
    assert "non-finite" in result.reason


def test_an_exception_is_named_and_its_traceback_is_in_the_log(executor, tmp_path):
    executor.submit(1, spec(tmp_path, task={"text": {"corpus": str(tmp_path / "nothing-*.txt")}}), Limits())
    result = ending(executor).result
    assert result.state == "failed"
    assert result.reason.startswith("exception: InputError")
    assert "Traceback" in (tmp_path / "log.txt").read_text()


def test_a_timeout_kills_the_trial(executor, tmp_path):
    executor.submit(1, spec(tmp_path, steps=10**6), Limits(timeout_s=2.0))
    (running,) = executor._running.values()
    pid = running.process.pid
    started = time.monotonic()
    result = ending(executor).result
    assert result.reason == "timeout: longer than 2 s"
    assert time.monotonic() - started < 20
    assert not alive(pid)


def test_a_timeout_kills_what_the_trial_has_started(executor, tmp_path, monkeypatch):
    (tmp_path / "hanging_task.py").write_text(
        textwrap.dedent("""
        import pathlib, subprocess, time
        from resnas.tasks.khop import KHop

        class Hanging(KHop):
            note: str

            def load(self):
                child = subprocess.Popen(["sleep", "600"])
                pathlib.Path(self.note).write_text(str(child.pid))
                time.sleep(600)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    hanging = {"hanging_task:Hanging": {"note": str(tmp_path / "pid")}}
    executor.submit(1, spec(tmp_path, task=hanging), Limits(timeout_s=2.0))
    assert ending(executor).result.reason.startswith("timeout")
    deadline = time.monotonic() + 30
    while alive(int((tmp_path / "pid").read_text())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_killed_trial_is_named(executor, tmp_path):
    executor.submit(1, spec(tmp_path, steps=10**6), Limits())
    (running,) = executor._running.values()
    time.sleep(1)
    os.kill(running.process.pid, signal.SIGKILL)
    assert ending(executor).result.reason.startswith("killed: by SIGKILL")


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits are those of Linux")
def test_an_allocation_beyond_the_limit_is_out_of_memory(executor, tmp_path):
    huge = spec(tmp_path)
    wide = Architecture(depth=2, width=16384, heads=2).model_dump(mode="json")
    executor.submit(1, TrialSpec(**{**vars(huge), "architecture": wide}), Limits(memory_gib=2.0))
    assert ending(executor).result.reason.startswith("out of memory")


def test_call_runs_where_torch_is_loaded_and_brings_input_errors_back(executor):
    assert len(executor.call(inspect_task, TASK)["data_sha256"]) == 64
    with pytest.raises(InputError, match="nothing-here"):
        executor.call(inspect_task, {"text": {"corpus": "nothing-here-*.txt"}})


def test_a_trial_starts_within_a_second(executor, tmp_path):
    """From the start of the process to the first training step, the first trial not counted."""
    times = []
    for number in range(4):
        submitted_s = time.time()
        executor.submit(number, spec(tmp_path / str(number)), Limits())
        submission_s = time.time() - submitted_s
        times.append(submission_s + ending(executor).result.metrics["start_time_s"])
    print("seconds to the first step:", times)
    assert min(times[1:]) < 1.0, times


def test_trials_end_with_the_process_that_started_them(tmp_path):
    """SIGKILL the coordinator: its trial must be gone within seconds."""
    script = tmp_path / "start.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_executor import spec
        from resnas.executor import Limits, LocalExecutor

        if __name__ == "__main__":
            executor = LocalExecutor(workers=1)
            executor.submit(1, spec({str(tmp_path)!r}, steps=10**6), Limits())
            print(next(iter(executor._running.values())).process.pid, flush=True)
            while True:
                for event in executor.events(0.2):
                    executor.answer(event.number, False)
        """)
    )
    coordinator = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert coordinator.stdout is not None
    pid = int(coordinator.stdout.readline())
    time.sleep(1)
    assert alive(pid)
    coordinator.kill()
    coordinator.wait()
    coordinator.stdout.close()
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Is there such a process that is not a zombie?"""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_call_can_be_given_up(tmp_path):
    """As Ctrl-C does while data are read; what reads them is gone."""
    from resnas.executor import Aborted

    executor = LocalExecutor(workers=1)
    threading.Timer(1.0, executor.abort).start()
    started = time.monotonic()
    with pytest.raises(Aborted):
        executor.call(time.sleep, 600)
    assert time.monotonic() - started < 20
    executor.stop()
