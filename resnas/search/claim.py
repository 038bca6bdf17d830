"""Who drives a study."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from resnas.search.storage import locked
from resnas.study import Study


class Claim(Protocol):
    """A coordinator's right to drive a study."""

    owner: str

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other coordinators of the study waiting."""

    def is_alive(self, owner: str) -> bool:
        """Whether the coordinator of this name still lives."""


class LocalClaim:
    """The only coordinator."""

    def __init__(self) -> None:
        self.owner = f"{os.getpid()}"

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else is there."""
        return contextlib.nullcontext()

    def is_alive(self, owner: str) -> bool:
        """Nobody else is there."""
        return False


@contextlib.contextmanager
def claimed(study: Study, storage: Any) -> Iterator[Claim]:
    """Claim."""
    with locked(study):
        yield LocalClaim()
