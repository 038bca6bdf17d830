"""Trials on this machine: one fresh process per trial, forked from a server that has torch and Lightning loaded."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

import psutil

from resnas.errors import ResnasError
from resnas.executor.events import Aborted, Ended, Limits, Reported
from resnas.executor.group import Group, out_of_memory_kills
from resnas.executor.process import call_process, trial_process
from resnas.passwords import kept_from_children
from resnas.trial import TrialResult, TrialSpec

PRELOADED = ["__main__", "resnas.executor", "resnas.train", "tensorboard.summary.writer.event_file_writer"]
"""Imported once by the fork server, so that a trial starts in a fraction of a second."""
POLL_S = 0.1
END_S = 5.0
"""How long a process may take to end once it has given its result."""
LOOK_EVERY_S = 1.0
"""How often the memory of a trial and its child processes is looked at."""
GONE_CODE = 255
"""The exit code that Python gives a process whose fork server is gone, and which still runs."""


@dataclass
class _Running:
    process: Any
    """Its sentinel is ready when it has ended, whoever still holds the channel, and when the fork server has."""
    channel: connection.Connection
    group: Group
    limits: Limits
    device: str | None
    started_s: float = field(default_factory=time.monotonic)
    oom_kills: int = field(default_factory=out_of_memory_kills)
    looked_s: float = field(default_factory=time.monotonic)


class LocalExecutor:
    """Trials as processes of this machine."""

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        self._devices = _free_devices()
        self.slots = workers or len(self._devices) or max(1, (os.cpu_count() or 1) // threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the fork server loads torch
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._running: dict[int, _Running] = {}
        self._aborted = False
        _start_fork_server()

    def submit(self, number: int, spec: TrialSpec, limits: Limits) -> str:
        """Start a trial in a process of its own; return its host and process."""
        device = self._devices[len(self._running) % len(self._devices)] if self._devices else None
        in_use = {running.device for running in self._running.values()}
        device = next((free for free in self._devices if free not in in_use), device)
        running = self._start(limits, device, trial_process, spec, limits.memory_gib, device)
        self._running[number] = running
        return f"{platform.node()}, process {running.process.pid}"

    def events(self, timeout_s: float) -> list[Reported | Ended]:
        """Return reports and endings."""
        waiting: list[Any] = []
        for running in self._running.values():
            waiting += [running.channel, running.process.sentinel]
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
            running.group.ask()
        for running in self._running.values():
            running.group.kill()
            running.process.join()
        self._running.clear()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, computed in a process that has torch loaded.

        Raises:
            Aborted: `abort` was called.
            ResnasError: what the function raised; an InputError stays one.
        """
        running = self._start(Limits(), None, call_process, function, arguments)
        try:
            while not running.channel.poll():
                if self._aborted:
                    raise Aborted("stopped while the data were being read")
                if running.process.exitcode is not None and not running.channel.poll():
                    raise EOFError
                connection.wait([running.channel, running.process.sentinel], POLL_S)
            error, value = running.channel.recv()
            running.process.join(END_S)
        except (EOFError, OSError):
            raise ResnasError(f"a helper process ended unexpectedly ({_died(running).reason})") from None
        finally:
            running.group.kill()
        if error is not None:
            raise error
        return value

    def abort(self) -> None:
        """Give up a call."""
        self._aborted = True

    def _start(self, limits: Limits, device: str | None, target: Callable[..., None], *arguments: Any) -> _Running:
        for attempt in (1, 2):
            _start_fork_server()
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=target, args=(theirs, *arguments))
            try:
                with kept_from_children():  # it starts the server where that was killed just now
                    process.start()
                break
            except (ConnectionError, EOFError):  # the server was killed while it was asked
                if attempt == 2:
                    raise
            finally:
                theirs.close()
        assert process.pid is not None
        return _Running(process, ours, Group(process.pid), limits, device)

    def _event(self, number: int) -> Reported | Ended | None:
        running = self._running[number]
        ended = running.process.exitcode is not None  # asked first: after that nothing comes
        while running.channel.poll():
            try:
                message = running.channel.recv()
            except (EOFError, OSError):
                return self._end(number, _died(running))
            if isinstance(message, TrialResult):
                return self._end(number, message)
            if not ended:  # a report of the dead waits for no answer
                return Reported(number, *message)
        if ended:
            return self._end(number, _died(running))
        timeout_s = running.limits.timeout_s
        if timeout_s and time.monotonic() - running.started_s > timeout_s:
            return self._end(number, TrialResult.failure("timeout", f"longer than {timeout_s:g} s"))
        if time.monotonic() - running.looked_s > LOOK_EVERY_S:
            running.looked_s = time.monotonic()
            limit_gib, used_gib = running.limits.memory_gib, running.group.memory_bytes() / 2**30
            if limit_gib is not None and used_gib > limit_gib:
                detail = f"{used_gib:.2f} GiB with its child processes, more than the limit of {limit_gib:g} GiB"
                return self._end(number, TrialResult.failure("out of memory", detail))
        return None

    def _end(self, number: int, result: TrialResult) -> Ended:
        running = self._running.pop(number)
        running.process.join(timeout=0 if result.cause in ("timeout", "out of memory") else END_S)
        running.group.kill()
        running.process.join()
        return Ended(number, result)


def _start_fork_server() -> None:
    """Start it where there is none, or no more; deaf to Ctrl-C, which a terminal sends to all.

    The coordinator ends the trials itself, and is deaf only while it starts the server.
    """
    if _fork_server_runs():
        return
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        with kept_from_children():
            forkserver.ensure_running()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


def _fork_server_runs() -> bool:
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    with contextlib.suppress(psutil.Error):
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _free_devices() -> list[str]:
    """Return the CUDA devices of this machine, found without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device.strip() not in ("", "-1")]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def _died(running: _Running) -> TrialResult:
    """Say how a process ended that gave no result."""
    process = running.process
    process.join()
    if process.exitcode is not None and process.exitcode < 0:
        name = signal.Signals(-process.exitcode).name
        if name == "SIGKILL" and out_of_memory_kills() > running.oom_kills:
            return TrialResult.failure("out of memory", "killed by the system, which had no memory left")
        return TrialResult.failure("killed", f"by {name}")
    if process.exitcode == GONE_CODE and running.group.has_guard():
        return TrialResult.failure("killed", "its fork server was killed")
    return TrialResult.failure("exception", f"its process ended without a result (exit code {process.exitcode})")
