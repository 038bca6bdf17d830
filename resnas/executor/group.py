"""The processes of a trial: its own and all that it started, whether they stayed in its process group or not."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1  # of prctl(2)
PR_SET_CHILD_SUBREAPER = 36
GUARD_S = 3.0
"""How long a guard may take to end its trial, before it is killed as well."""


class Group:
    """A trial's guard and its descendants: the trial, and what that has started.

    On Linux the guard has them all, for as long as it lives; those that `look` has met are known without it too.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._guard: psutil.Process | None = None
        self._met: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error):
            self._guard = psutil.Process(pid)
        self.look()

    def look(self) -> None:
        """Find the descendants that there are now: those that leave the group are met before they lose their parent."""
        if self._guard is not None:
            with contextlib.suppress(psutil.Error):
                self._met.update(self._guard.children(recursive=True))

    def memory_bytes(self) -> int:
        """Return the memory of all but the guard; what they share with other processes counts in part (Linux)."""
        self.look()
        return sum(_memory_bytes(process) for process in self._met)

    def has_guard(self) -> bool:
        """Is the guard still there? Its end is told only after it is gone."""
        return self._guard is not None and self._guard.is_running()

    def ask(self) -> None:
        """Let the guard kill all the others and end."""
        if self._guard is not None:
            with contextlib.suppress(psutil.Error):  # psutil sees to it that it is the same process still
                self._guard.terminate()

    def kill(self) -> None:
        """Kill all of them: the guard does it; here is killed what is left where the guard is dead, or hangs."""
        self.look()
        self.ask()
        if self._guard is not None:
            with contextlib.suppress(psutil.Error):
                self._guard.wait(GUARD_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        for process in self._met:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _memory_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.uss))
    return 0


def kill_own_descendants() -> None:
    """Kill whatever this process has started."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, even where Python hangs in C code (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Let the kernel give this process the descendants that lose their parent, rather than init (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def out_of_memory_kills() -> int:
    """Return how many processes this machine, and this container, has killed for lack of memory (Linux)."""
    return sum(_oom_kill_counts())


def _oom_kill_counts() -> Iterator[int]:
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            lines = Path(path).read_text(encoding="ascii").splitlines()
            yield from (int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
