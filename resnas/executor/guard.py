"""The guard of a trial: a process between the fork server and the trial that does nothing but see to its ending.

It is a process, since a thread cannot run where the trial hangs in C code and holds Python's lock. And it is the parent
of the trial, since the kernel (Linux) then gives it whatever the trial leaves behind, daemons too: nothing has to be
marked or searched for, and nothing is left where the trial itself is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from multiprocessing import connection

from resnas.executor.group import adopt_orphans, die_with_parent, kill_own_descendants

LAST_S = 5.0
"""How long the guard waits for processes that it has killed; the kernel may take a while to free a GPU's memory."""
AGAIN_S = 0.01


def fork_guarded() -> None:
    """Go on in a new process, which dies with this one; this one stays as its guard and does not return."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    adopt_orphans()
    guard = os.getpid()
    trial = os.fork()
    if trial == 0:
        die_with_parent()
        if os.getppid() != guard:  # it died before the kernel was asked
            os._exit(1)
        return
    status: int = signal.SIGKILL
    try:
        status = _ending(trial, parent.sentinel)
        _end_descendants()
    finally:
        _end_alike(status)


def _ending(trial: int, coordinator: int) -> int:
    """Wait until the trial has ended, the coordinator is gone, or SIGTERM; return the trial's status as of wait(2)."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the wakeup alone counts
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # of any child: what was adopted must not stay as a zombie
        if pid == trial:
            return status
        if pid == 0:
            ready = connection.wait([coordinator, woken])
            if coordinator in ready or signal.SIGTERM in os.read(woken, 512):
                return signal.SIGTERM


def _end_descendants() -> None:
    """Kill what this process has started and adopted, until there is nothing."""
    deadline = time.monotonic() + LAST_S
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        kill_own_descendants()
        time.sleep(AGAIN_S)


def _end_alike(status: int) -> None:
    """End as the trial did, so that who waits for this process learns how."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the trial has left its own
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)
