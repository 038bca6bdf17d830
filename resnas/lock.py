"""Which process works in a folder: a lock that the kernel takes back with the process, and that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from resnas.errors import InputError, ResnasError


@contextlib.contextmanager
def locked(path: Path, busy: str, more: str = "") -> Iterator[None]:
    """Lock a file and say in it who holds it; the file stays, and its folder is made.

    Args:
        path: of the file.
        busy: what is said of another process that holds it.
        more: what is said after that.

    Raises:
        InputError: the folder or the file cannot be written.
        ResnasError: another process holds it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror or error}") from error
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the lock {path}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResnasError(f"{busy}: {_holder(file)} (its lock is {path}){more}") from None
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()} since {since}\n")
        file.flush()
        yield


def _holder(file: TextIO) -> str:
    file.seek(0)
    return file.readline().strip() or "it has just started"
