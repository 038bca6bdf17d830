"""Who drives a study: one coordinator where it is kept in a file, several where it is kept in PostgreSQL."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol, TextIO

from resnas.errors import InputError, ResnasError
from resnas.search.advisory import SharedClaim
from resnas.search.storage import Location, locate, refusal
from resnas.study import Study


class Claim(Protocol):
    """What a coordinator holds while it drives a study."""

    @property
    def owner(self) -> str:
        """The coordinator's name, `host:process:random`, which it writes to each trial that it starts."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Enter a section in which no other coordinator of this study is, as long as `has_turn`.

        Raises:
            ResnasError: the storage is away, or another coordinator does not leave the section.
        """
        ...

    def has_turn(self) -> bool:
        """Whether no other coordinator can have been in the section since this one entered it.

        Ask it inside `exclusive`, after what only one may do was written down; where it is False, take that back.
        """
        ...

    def is_alive(self, owner: str) -> bool:
        """Whether the coordinator of this name lives, as far as one can know. Raises ResnasError as `exclusive`."""
        ...


class SoleClaim:
    """The claim of the one coordinator that a study has."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def exclusive(self) -> AbstractContextManager[None]:
        """Do nothing: there is no other."""
        return contextlib.nullcontext()

    def has_turn(self) -> bool:
        """There is no other to have it."""
        return True

    def is_alive(self, owner: str) -> bool:
        """Only this one lives: it holds the lock."""
        return owner == self.owner


@contextlib.contextmanager
def claimed(study: Study) -> Iterator[Claim]:
    """Drive a study; the claim goes with the process that holds it.

    Args:
        study: one whose results folder exists.

    Raises:
        InputError: the storage cannot be used.
        ResnasError: another coordinator runs this study where only one can.
    """
    owner = f"{platform.node()}:{os.getpid()}:{secrets.token_hex(8)}"
    location = locate(study)
    if location.kind == "postgresql":
        try:
            claim = SharedClaim(location, study.name, owner)
        except ResnasError:
            raise
        except Exception as error:
            raise refusal(location, error) from error
        with claim:
            yield claim
        return
    with ExitStack() as held:
        for path in _lock_files(study, location):
            busy = f"another search is running the study {study.name!r}"
            held.enter_context(locked(path, busy, ". Only a study in PostgreSQL can have several"))
        yield SoleClaim(owner)


def _lock_files(study: Study, location: Location) -> list[Path]:
    """Return the files to lock: another study file of the same name may keep its trials in the same file."""
    paths = [study.results_folder / "lock"]
    if location.path is not None and location.path.parent != study.results_folder:
        paths.append(location.path.with_name(f"{location.path.name}.{study.name}.lock"))
    return paths


@contextlib.contextmanager
def locked(path: Path, busy: str, more: str = "") -> Iterator[None]:
    """Lock a file and say in it who holds it. The kernel gives the lock back with the process; the file stays.

    Args:
        path: of the file; its folder exists.
        busy: what is said of another process that holds it.
        more: what is said after that.

    Raises:
        InputError: the file cannot be written.
        ResnasError: another process holds it.
    """
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
