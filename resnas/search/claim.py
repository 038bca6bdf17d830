"""Who drives a study: one coordinator where it is kept in a file, several where it is kept in PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

from resnas.errors import ResnasError
from resnas.lock import locked
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
