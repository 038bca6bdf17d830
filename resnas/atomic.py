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
    # beside the file, since only within a file system is a move one step; named so that no two writers meet
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
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
