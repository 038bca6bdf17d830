"""What trials leave behind, and what is killed around them, with real processes: nothing survives, all is named."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
from test_executor import TASK, alive, ending, spec

from resnas.errors import ResnasError
from resnas.executor import Limits, LocalExecutor, inspect_task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted, and found, on Linux")

NASTY = """
    import ctypes, os, pathlib, signal, subprocess, sys, time
    from resnas.tasks.khop import KHop

    def note(path, pid):
        pathlib.Path(path + ".new").write_text(str(pid))
        os.rename(path + ".new", path)

    class Nasty(KHop):
        fault: str
        note: str

        def load(self):
            if self.fault.startswith("fork"):  # the child holds whatever its parent held
                if (child := os.fork()) == 0:
                    time.sleep(600)
                    os._exit(0)
                note(self.note, child)
            if self.fault.startswith("litter"):
                for _ in range(5):
                    subprocess.run(["sh", "-c", "sleep 0.1 &"], check=True)
                time.sleep(0.5)
                note(self.note, 0)
            if self.fault.startswith("daemon"):
                command = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
                child = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
                note(self.note, int(child))
            if self.fault.endswith("killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault.endswith("exit"):
                os._exit(255)
            if self.fault.endswith("hang"):
                ctypes.PyDLL(None).sleep(600)  # Python's lock stays with it
            return super().load()
"""


@pytest.fixture(scope="module")
def executor():
    made = LocalExecutor(workers=2)
    yield made
    made.stop()


@pytest.fixture
def nasty(tmp_path, monkeypatch):
    """Return a function that makes a task with a fault; its child's number is written to `tmp_path / "pid"`."""
    (tmp_path / "nasty_task.py").write_text(textwrap.dedent(NASTY))
    monkeypatch.syspath_prepend(tmp_path)
    return lambda fault: {"nasty_task:Nasty": {"fault": fault, "note": str(tmp_path / "pid")}}


def noted(folder: Path) -> int:
    wait_until((folder / "pid").exists, 30)
    return int((folder / "pid").read_text())


def wait_until(true, timeout_s=30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def zombies() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.status() == psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("kind", ["fork", "daemon"])
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("killed", "killed: by SIGKILL"),
        ("exit", "exception: its process ended without a result (exit code 255)"),
        ("hang", "timeout: longer than 3 s"),
        ("complete", ""),
    ],
)
def test_what_a_trial_leaves_behind_ends_with_it_and_hides_nothing(executor, nasty, tmp_path, kind, end, reason):
    executor.submit(1, spec(tmp_path, task=nasty(f"{kind}, {end}")), Limits(timeout_s=3 if end == "hang" else 30))
    started_s = time.monotonic()
    result = ending(executor).result
    assert (result.state, result.reason) == (("failed", reason) if reason else ("complete", ""))
    assert time.monotonic() - started_s < 20
    assert not alive(noted(tmp_path))
    assert not zombies()


def test_a_call_whose_process_dies_ends_though_a_child_lives(executor, nasty, tmp_path):
    started_s = time.monotonic()
    with pytest.raises(ResnasError, match="killed: by SIGKILL"):
        executor.call(inspect_task, nasty("fork, killed"))
    assert time.monotonic() - started_s < 20
    assert not alive(noted(tmp_path))


def test_orphans_that_end_while_the_trial_runs_do_not_stay_as_zombies(executor, nasty, tmp_path):
    executor.submit(1, spec(tmp_path, task=nasty("litter, hang")), Limits(timeout_s=2.0))
    noted(tmp_path)
    assert not zombies()
    assert ending(executor).result.cause == "timeout"


def test_a_guard_that_is_killed_takes_its_trial_along(executor, nasty, tmp_path):
    executor.submit(1, spec(tmp_path, task=nasty("fork, hang")), Limits())
    child = noted(tmp_path)
    (running,) = executor._running.values()
    os.kill(running.process.pid, signal.SIGKILL)
    assert ending(executor).result.reason == "killed: by SIGKILL"
    wait_until(lambda: not alive(child))


@pytest.mark.slow
def test_trials_whose_fork_server_is_killed_are_named_so_and_the_next_ones_run_as_ever(executor, nasty, tmp_path):
    for number in (1, 2):
        executor.submit(number, spec(tmp_path / str(number), task=nasty("daemon, hang")), Limits())
    child = noted(tmp_path)
    trials = [one for running in executor._running.values() for one in tree(running.process.pid)]
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(server, signal.SIGKILL)
    endings: list = []
    wait_until(lambda: endings.extend(executor.events(0.2)) or len(endings) == 2)
    assert {ended.result.reason for ended in endings} == {"killed: its fork server was killed"}
    wait_until(lambda: not alive(child) and not any(alive(one) for one in trials))
    assert len(executor.call(inspect_task, TASK)["data_sha256"]) == 64
    new = psutil.Process(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]
    assert new.pid != server
    assert new.environ()["OMP_NUM_THREADS"] == "1"
    assert bin(signals_ignored(new.pid))[-signal.SIGINT] == "1"
    executor.submit(3, spec(tmp_path / "3"), Limits())
    result = ending(executor).result
    assert result.state == "complete"
    assert result.metrics["start_time_s"] < 1  # as torch and Lightning are loaded there again


def tree(pid: int) -> list[int]:
    return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]


def signals_ignored(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fork", "daemon"])
def test_what_a_hanging_trial_has_started_ends_with_the_coordinator(nasty, tmp_path, kind):
    """SIGKILL the coordinator: nothing in the trial can run then, as C code holds Python's lock."""
    script = tmp_path / "start.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(tmp_path)!r}]
        from test_executor import spec
        from resnas.executor import Limits, LocalExecutor

        if __name__ == "__main__":
            executor = LocalExecutor(workers=1)
            executor.submit(1, spec({str(tmp_path)!r}, task={nasty(f"{kind}, hang")!r}), Limits())
            while True:
                executor.events(0.2)
        """)
    )
    coordinator = subprocess.Popen([sys.executable, str(script)])
    try:
        child = noted(tmp_path)
        time.sleep(0.5)  # it hangs now
        whole = [*tree(coordinator.pid), child]
        assert len(whole) > 4
    finally:
        coordinator.kill()
        coordinator.wait()
    wait_until(lambda: not any(alive(one) for one in whole))
