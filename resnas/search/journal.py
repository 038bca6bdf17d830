"""Optuna's journal file: opening one whose last record was torn by a kill or by a loss of power.

Optuna appends to a torn record, which makes both unreadable, and the whole study with them. So the tail is looked at
before anything is appended, and what is no record is put aside.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import BinaryIO

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

BLOCK_BYTES = 1 << 16
_logger = logging.getLogger(__name__)


def open_journal(path: Path) -> JournalStorage:
    """Return the storage of a journal file, made if it does not exist; a torn last record is put aside.

    Raises:
        OSError: the file cannot be made or read.
        ValueError: the file is no journal.
    """
    path.touch()
    if _torn(path) is not None and os.access(path, os.W_OK):
        _repair(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _repair(path: Path) -> None:
    """Put a torn tail aside, or end a whole record whose line end is missing. Others keep out: all who append lock."""
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        torn = _torn(path)
        if torn is None:
            return
        start, tail = torn
        with path.open("r+b") as file:
            if _is_record(tail):
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
            else:
                aside = _put_aside(path, tail)
                file.truncate(start)
                _logger.warning(
                    "%s: its last record was torn (%d bytes, never confirmed); they lie in %s now",
                    path,
                    len(tail),
                    aside,
                )
            file.flush()
            os.fsync(file.fileno())
    finally:
        lock.release()


def _put_aside(path: Path, tail: bytes) -> Path:
    number = 0
    while (aside := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    with aside.open("wb") as file:
        file.write(tail)
        file.flush()
        os.fsync(file.fileno())
    return aside


def _torn(path: Path) -> tuple[int, bytes] | None:
    """Return offset and bytes of what follows the last whole record; None where nothing does."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        while start > 0:
            line = _line_before(file, start)
            if line.endswith(b"\n") and _is_record(line):
                break
            if line.endswith(b"\n") and start != end and not _is_lost_block(line):
                break  # only the last line can be torn; one before it is for Optuna to refuse
            start -= len(line)
        file.seek(start)
        return (start, file.read()) if start < end else None


def _is_lost_block(line: bytes) -> bool:
    """Whether a line holds zeros, which a loss of power leaves where data had not reached the disk."""
    return b"\0" in line


def _line_before(file: BinaryIO, end: int) -> bytes:
    """Return the line that ends at an offset."""
    start, line = end, b""
    while start > 0 and b"\n" not in line[:-1]:
        size = min(BLOCK_BYTES, start)
        start -= size
        file.seek(start)
        line = file.read(size) + line
    return line[line.rfind(b"\n", 0, len(line) - 1) + 1 :]


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
