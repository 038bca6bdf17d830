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

from resnas.errors import ResnasError
from resnas.executor.events import Aborted, Ended, Limits, Reported
from resnas.executor.group import Group, out_of_memory_kills
from resnas.executor.process import call_process, trial_process
from resnas.passwords import kept_from_children
from resnas.trial import TrialResult, TrialSpec

PRELOADED = ["__main__", "resnas.executor", "resnas.train", "tensorboard.summary.writer.event_file_writer"]
"""Imported once by the fork server, so that a trial starts in a fraction of a second."""
POLL_S = 0.1
LOOK_EVERY_S = 1.0
"""How often the memory of a trial and its child processes is looked at."""


@dataclass
class _Running:
    process: Any
    group: Group
    channel: connection.Connection
    deadline: float
    limits: Limits
    device: str | None
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
        process, channel = self._start(trial_process, spec, limits.memory_gib, device)
        deadline = time.monotonic() + (limits.timeout_s or float("inf"))
        self._running[number] = _Running(process, Group(process.pid), channel, deadline, limits, device)
        return f"{platform.node()}, process {process.pid}"

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
        process, channel = self._start(call_process, function, arguments)
        while not channel.poll(POLL_S):
            if self._aborted:
                Group(process.pid).kill()
                process.join()
                raise Aborted("stopped while the data were being read")
        try:
            error, value = channel.recv()
        except EOFError:
            process.join()
            raise ResnasError(f"a helper process ended unexpectedly (exit code {process.exitcode})") from None
        process.join()
        if error is not None:
            raise error
        return value

    def abort(self) -> None:
        """Give up a call."""
        self._aborted = True

    def _start(self, target: Callable[..., None], *arguments: Any) -> tuple[Any, connection.Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=target, args=(theirs, *arguments))
        with kept_from_children():  # it may have to start the fork server again
            process.start()
        theirs.close()
        return process, ours

    def _event(self, number: int) -> Reported | Ended | None:
        running = self._running[number]
        if running.channel.poll():
            try:
                message = running.channel.recv()
            except (EOFError, OSError):
                return self._end(number, _died(running))
            if isinstance(message, TrialResult):
                return self._end(number, message)
            return Reported(number, *message)
        if time.monotonic() > running.deadline:
            return self._end(number, TrialResult.failure("timeout", f"longer than {running.limits.timeout_s:g} s"))
        if time.monotonic() - running.looked_s > LOOK_EVERY_S:
            running.looked_s = time.monotonic()
            limit_gib, used_gib = running.limits.memory_gib, running.group.memory_bytes() / 2**30
            if limit_gib is not None and used_gib > limit_gib:
                detail = f"{used_gib:.2f} GiB with its child processes, more than the limit of {limit_gib:g} GiB"
                return self._end(number, TrialResult.failure("out of memory", detail))
        return None

    def _end(self, number: int, result: TrialResult) -> Ended:
        running = self._running.pop(number)
        running.process.join(timeout=0 if result.cause in ("timeout", "out of memory") else 5)
        running.group.kill()
        running.process.join()
        return Ended(number, result)


def _start_fork_server() -> None:
    """Start it deaf to Ctrl-C, which a terminal sends to all; the coordinator ends the trials itself."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        with kept_from_children():
            forkserver.ensure_running()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


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
    return TrialResult.failure("exception", f"its process ended without a result (exit code {process.exitcode})")
