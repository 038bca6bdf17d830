"""Inside the process of a trial: it leads its own process group, ends with the process that asked for it, logs to a
file, and always gives a result with a reason.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

from resnas.allocator import keep_freed_memory
from resnas.errors import ResnasError, TrialFailed
from resnas.trial import Cause, TrialResult, TrialSpec


def inspect_task(task: dict[str, Any]) -> dict[str, Any]:
    """Call `resnas.train.inspect_task`; for `LocalExecutor.call`, so that the caller need not load torch."""
    from resnas import train

    return train.inspect_task(task)


def trial_process(
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
    keep_freed_memory()
    with _output_to(Path(spec.folder) / "log.txt"):
        result = _run(spec, lambda step, metrics: _ask(channel, step, metrics), started_s)
        sys.stdout.flush()
    channel.send(result)
    channel.close()


def _run(spec: TrialSpec, report: Callable[[int, dict[str, float]], bool], started_s: float) -> TrialResult:
    """Run the trial and name its ending."""
    from resnas.train import run_trial

    try:
        return run_trial(spec, report, started_s)
    except TrialFailed as failure:
        return TrialResult.failure("non-finite loss", str(failure))
    except BaseException as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}".strip().split("\n")[0]
        return TrialResult.failure(cause_of(error), words)


def cause_of(error: BaseException) -> Cause:
    """Say what kind of failure an exception is; torch has its own words for memory on the host and on a GPU."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate memory" in str(error):
        return "out of memory"
    return "exception"


def _ask(channel: connection.Connection, step: int, metrics: dict[str, float]) -> bool:
    channel.send((step, metrics))
    return bool(channel.recv())


def call_process(channel: connection.Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Be the process of one call; send (error, value) back."""
    os.setsid()
    _end_with_parent()
    try:
        channel.send((None, function(*arguments)))
    except ResnasError as error:
        channel.send((error, None))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        channel.send((ResnasError(f"{type(error).__name__} in {where}: {error}"), None))
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
