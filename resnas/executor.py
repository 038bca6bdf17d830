"""Runs trials in processes: one fresh process per trial, forked from a server that has torch and Lightning loaded.

An executor knows nothing of studies. It takes specs, and gives events: a validation was reported (and waits for an
answer), a trial ended. Every ending has a reason. The local executor's trials lead their own process group, which is
killed as a whole; they end by themselves when the process that started them dies.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, Protocol

from resnas.errors import InputError, ResnasError, TrialFailed
from resnas.trial import TrialResult, TrialSpec

PRELOADED = ["__main__", "resnas.executor", "resnas.train", "tensorboard.summary.writer.event_file_writer"]
"""Imported once by the fork server, so that a trial starts in a fraction of a second."""


@dataclass(frozen=True)
class Limits:
    """Hard limits of one trial; None is no limit."""

    timeout_s: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True)
class Reported:
    """A trial has validated and waits for `Executor.answer`."""

    number: int
    step: int
    value: float


@dataclass(frozen=True)
class Ended:
    """A trial has ended, one way or another."""

    number: int
    result: TrialResult


class Executor(Protocol):
    """Runs trials somewhere."""

    slots: int
    """Trials that may run at the same time."""

    def submit(self, number: int, spec: TrialSpec, limits: Limits) -> None:
        """Start a trial."""

    def events(self, timeout_s: float) -> list[Reported | Ended]:
        """Return what happened, waiting up to `timeout_s` for something to happen."""

    def answer(self, number: int, prune: bool) -> None:
        """Let a trial that reported go on, or ask it to stop."""

    def stop(self) -> None:
        """End all running trials at once, without events."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, computed where trials run. Raises its InputError."""


@dataclass
class _Running:
    process: Any
    channel: connection.Connection
    deadline: float
    limits: Limits
    device: str | None


class LocalExecutor:
    """Trials as processes of this machine."""

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        self._devices = _free_devices()
        self.slots = workers or len(self._devices) or max(1, (os.cpu_count() or 1) // threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the fork server loads torch
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._running: dict[int, _Running] = {}
        forkserver.ensure_running()

    def submit(self, number: int, spec: TrialSpec, limits: Limits) -> None:
        """Start a trial in a process of its own."""
        folder = Path(spec.folder)
        folder.mkdir(parents=True, exist_ok=True)
        device = self._devices[len(self._running) % len(self._devices)] if self._devices else None
        in_use = {running.device for running in self._running.values()}
        device = next((free for free in self._devices if free not in in_use), device)
        process, channel = self._start(_trial_process, spec, limits.memory_gib, device)
        deadline = time.monotonic() + (limits.timeout_s or float("inf"))
        self._running[number] = _Running(process, channel, deadline, limits, device)

    def events(self, timeout_s: float) -> list[Reported | Ended]:
        """Return reports and endings."""
        waiting: list[Any] = [running.channel for running in self._running.values()]
        if waiting:
            connection.wait(waiting, timeout_s)
        return [event for number in list(self._running) if (event := self._event(number)) is not None]

    def answer(self, number: int, prune: bool) -> None:
        """Answer a report."""
        with contextlib.suppress(OSError):  # it has died since; `events` will say so
            self._running[number].channel.send(prune)

    def stop(self) -> None:
        """Kill every trial."""
        for running in self._running.values():
            _kill(running.process)
        self._running.clear()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, computed in a process that has torch loaded; InputErrors come back as such."""
        process, channel = self._start(_call_process, function, arguments)
        try:
            error, value = channel.recv()
        except EOFError:
            process.join()
            raise ResnasError(f"a helper process ended unexpectedly (exit code {process.exitcode})") from None
        process.join()
        if error is not None:
            raise error
        return value

    def _start(self, target: Callable[..., None], *arguments: Any) -> tuple[Any, connection.Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=target, args=(theirs, *arguments))
        process.start()
        theirs.close()
        return process, ours

    def _event(self, number: int) -> Reported | Ended | None:
        running = self._running[number]
        if running.channel.poll():
            try:
                message = running.channel.recv()
            except (EOFError, OSError):
                return self._end(number, _died(running.process))
            if isinstance(message, TrialResult):
                return self._end(number, message)
            return Reported(number, *message)
        if time.monotonic() > running.deadline:
            return self._end(number, TrialResult("failed", f"timeout: longer than {running.limits.timeout_s:g} s"))
        return None

    def _end(self, number: int, result: TrialResult) -> Ended:
        running = self._running.pop(number)
        running.process.join(timeout=0 if result.reason.startswith("timeout") else 5)
        _kill(running.process)
        return Ended(number, result)


def inspect_task(task: dict[str, Any]) -> dict[str, Any]:
    """Call `resnas.train.inspect_task`; for `LocalExecutor.call`, so that the caller need not load torch."""
    from resnas import train

    return train.inspect_task(task)


def _free_devices() -> list[str]:
    """Return the CUDA devices of this machine, found without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device.strip() not in ("", "-1")]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def _kill(process: Any) -> None:
    """Kill a trial's whole process group and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _died(process: Any) -> TrialResult:
    """Say how a process ended that gave no result."""
    process.join()
    if process.exitcode is not None and process.exitcode < 0:
        name = signal.Signals(-process.exitcode).name
        hint = " (the system may have been out of memory)" if name == "SIGKILL" else ""
        return TrialResult("failed", f"killed by {name}{hint}")
    return TrialResult("failed", f"the process ended without a result (exit code {process.exitcode})")


def _trial_process(
    channel: connection.Connection, spec: TrialSpec, memory_gib: float | None, device: str | None
) -> None:
    """Be the process of one trial."""
    started_s = time.time()
    os.setsid()
    _end_with_parent()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if memory_gib is not None:
        _limit_memory(memory_gib)
    with _output_to(Path(spec.folder) / "log.txt"):
        result = _run(spec, lambda step, value: _ask(channel, step, value), started_s)
        sys.stdout.flush()
    channel.send(result)
    channel.close()


def _run(spec: TrialSpec, report: Callable[[int, float], bool], started_s: float) -> TrialResult:
    """Run the trial and name its ending."""
    from resnas.train import run_trial

    try:
        return run_trial(spec, report, started_s)
    except TrialFailed as failure:
        return TrialResult("failed", str(failure))
    except BaseException as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}".strip().split("\n")[0]
        kind = "out of memory" if _is_out_of_memory(error) else "exception"
        return TrialResult("failed", f"{kind}: {words}")


def _is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate memory" in str(error)
    )


def _ask(channel: connection.Connection, step: int, value: float) -> bool:
    channel.send((step, value))
    return bool(channel.recv())


def _call_process(channel: connection.Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _end_with_parent()
    try:
        channel.send((None, function(*arguments)))
    except InputError as error:
        channel.send((error, None))
    channel.close()


def _end_with_parent() -> None:
    """Kill this process group when the process that asked for it is gone, whatever ended it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.killpg(os.getpgid(0), signal.SIGKILL) if os.getpgid(0) == os.getpid() else os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _limit_memory(memory_gib: float) -> None:
    """Let allocations beyond the limit fail (Linux: private memory of this process)."""
    import resource

    limit = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Send whatever this process prints to a file."""
    with path.open("a", encoding="utf-8", buffering=1) as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            yield
