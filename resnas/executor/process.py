"""Inside the process of a trial: it has a guard and a process group of its own, logs to a file, and always gives a
result with a reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

from resnas.allocator import keep_freed_memory
from resnas.errors import ResnasError, TrialFailed
from resnas.executor.group import kill_own_descendants
from resnas.executor.guard import fork_guarded
from resnas.trial import Cause, TrialResult, TrialSpec

_TORCH_WRITE = re.compile(r"PytorchStreamWriter failed writing|file write failed|unexpected pos \d+ vs \d+")
"""How torch's writer of files says that a file could not be written, which is a full disk in all but odd cases."""


def inspect_task(task: dict[str, Any]) -> dict[str, Any]:
    """Call `resnas.train.inspect_task`; for `LocalExecutor.call`, so that the caller need not load torch."""
    from resnas import train

    return train.inspect_task(task)


def trial_process(
    channel: connection.Connection, spec: TrialSpec, memory_gib: float | None, device: str | None
) -> None:
    """Be the process of one trial."""
    started_s = time.time()
    _be_on_its_own()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    elif memory_gib is not None:  # CUDA maps far more than it uses
        _limit_memory(memory_gib)
    keep_freed_memory()
    with contextlib.ExitStack() as output:
        try:
            output.enter_context(_output_to(Path(spec.folder) / "log.txt"))
        except OSError as error:
            result = _failure(error)
        else:
            result = _run(spec, lambda step, metrics: _ask(channel, step, metrics), started_s)
    kill_own_descendants()
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
        with contextlib.suppress(OSError):  # the log may be on a disk that is full
            traceback.print_exc()
        return _failure(error)


def _failure(error: BaseException) -> TrialResult:
    """Name a failure and quote the exception."""
    words = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    return TrialResult.failure(cause_of(error), words)


def cause_of(error: BaseException) -> Cause:
    """Say what kind of failure an exception is, by itself or by those behind it.

    What lies behind it counts because an exception while clearing up after a full disk or memory hides the first one.
    """
    kinds = {_kind(one) for one in _chain(error)}
    return "disk full" if "disk full" in kinds else "out of memory" if "out of memory" in kinds else "exception"


def _kind(error: BaseException) -> Cause:
    """Say what kind of failure one exception is; torch has its own words for memory and for files."""
    words = str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full"
    if "No space left on device" in words or "Disk quota exceeded" in words or _TORCH_WRITE.search(words):
        return "disk full"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate memory" in words:
        return "out of memory"
    return "exception"


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those that it was raised from or during, each once."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in found:
            found.append(one)
            left += [one.__cause__, one.__context__]
    return found


def _ask(channel: connection.Connection, step: int, metrics: dict[str, float]) -> bool:
    channel.send((step, metrics))
    return bool(channel.recv())


def call_process(channel: connection.Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Be the process of one call; send (error, value) back."""
    _be_on_its_own()
    try:
        channel.send((None, function(*arguments)))
    except ResnasError as error:
        channel.send((error, None))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        channel.send((ResnasError(f"{type(error).__name__} in {where}: {error}"), None))
    channel.close()


def _be_on_its_own() -> None:
    """Leave the coordinator's process group, and have a guard that ends this process with the coordinator."""
    os.setsid()
    _let_fork_server_end()
    fork_guarded()


def _let_fork_server_end() -> None:
    """Give back what keeps the fork server alive, so that it ends with the process that asked for it alone.

    Python hands it to every child; then a trial that hangs in C code would keep alive the parent it shall die with.
    """
    server: Any = getattr(forkserver, "_forkserver", None)
    held = getattr(server, "_forkserver_alive_fd", None)
    if held is not None:
        server._forkserver_alive_fd = None
        os.close(held)


def _limit_memory(memory_gib: float) -> None:
    """Let allocations beyond the limit fail (Linux: private memory of this process), before the group is killed."""
    import resource

    limit = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Send whatever this process prints to a file, made with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("a", encoding="utf-8", buffering=1)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log.fileno(), stream.fileno())
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield
    with contextlib.suppress(OSError):  # a disk that is full takes no last words; the result goes another way
        log.close()
