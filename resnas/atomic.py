"""Files written whole or not at all, whatever comes in between: an error, a signal, a full disk, a crash."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

PARTIAL = ".partial"
"""How the name of a file ends that is being written; one that a killed process left behind may be deleted."""


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace a file, or make it, folder included; a reader sees the old content or the new one, never a part.

    Raises:
        OSError: the content cannot be written; the old content is still there, and nothing else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(path)
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash of the machine may leave an empty file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a text file, or make it; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def link_or_copy(source: Path, target: Path) -> None:
    """Let `target` be the same content as `source`, without taking space where the file system has links.

    Raises:
        OSError: there is no `source`, or it cannot be copied.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(target)
    try:
        os.link(source, partial)
        partial.replace(target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        write_bytes(target, source.read_bytes())
    finally:
        partial.unlink(missing_ok=True)  # also left where both are one file already


def _partial(path: Path) -> Path:
    """Return a name beside a file, since only within a file system is a move one step, that no other writer takes."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
