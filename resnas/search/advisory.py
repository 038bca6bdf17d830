"""Several coordinators of one study in PostgreSQL: who of them lives, and whose turn it is, by advisory locks.

The server gives an advisory lock back when the connection that took it ends, however it ends. Each coordinator holds
one of its own on a connection of its own: another coordinator is dead if that lock is free. A thread looks after the
connection, so that a server which was restarted soon sees the lock again.

A turn is a lock as well, so it goes with a connection that breaks, and another coordinator may take it while the first
still works. What must not be done by two is therefore written down first and counts only where `has_turn` then says
that the turn has been held all along: whoever has the turn after that sees what was written.

Who gives a turn back takes a third lock first, shared by all that are between turns. The life lock could not tell the
next one that the turn broke off: the server gives the locks of a broken connection back one after the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from resnas.errors import ResnasError
from resnas.search.patience import PATIENCE_S, causes, is_transient, messages
from resnas.search.storage import Location, engine_options

LOOK_AFTER_S = 2.0
"""How often the connection is looked after."""
GRACE_S = 10.0
"""How long a coordinator's lock must have been free before it counts as dead, where its process cannot be looked at:
its connection may have broken, and then it takes the lock again within seconds."""
TURN_S = 600.0
"""How long to wait for one's turn."""
SETTLE_S = 3.0
"""How long a coordinator waits with its turn where its own connection has broken, or that of the one it waited for: who
had the turn may be finishing its last call. A coordinator that did not wait cannot know, and does not."""
HOLDERS = """
    SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND (classid::bigint << 32 | objid::bigint) = :key
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Which processes of the server hold a lock."""
SETTINGS = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "6",
    "lock_timeout": "5s",
}
"""By these the server notices within a minute that a host is lost, and gives its locks back."""


def lock_key(*parts: str) -> int:
    """Return the number of an advisory lock."""
    return int.from_bytes(hashlib.sha256("\0".join(("resnas", *parts)).encode()).digest()[:8], "big", signed=True)


@contextlib.contextmanager
def one_at_a_time(location: Location, name: str) -> Iterator[None]:
    """Make a study, or what it remembers, in only one process at a time; a study in a file has but one coordinator."""
    if location.kind != "postgresql":
        yield
        return
    connection = _connect(location)
    try:
        _execute(connection, "SET lock_timeout = '60s'")
        _execute(connection, "SELECT pg_advisory_lock(:key)", key=lock_key("opening"))
        yield
    finally:
        connection.close()


class SharedClaim:
    """The claim of one of several coordinators; a context manager that gives it back."""

    def __init__(self, location: Location, name: str, owner: str) -> None:
        self.owner = owner
        self._location = location
        self._name = name
        self._lock = threading.RLock()
        """Of the connection; it is not kept during a turn, so that a broken connection is made again meanwhile."""
        self._section = threading.RLock()
        self._closing = threading.Event()
        self._lost: ResnasError | None = None
        self._missing_since: dict[str, float] = {}
        self._settled_at = 0.0
        self._connection: Any = None
        self._turn: Any = None
        """The connection on which the turn was taken; None where it was not."""
        self._between: Any = None
        """The connection that holds the lock of those between turns; None where none has."""
        self._take()
        self._keeper = threading.Thread(target=self._look_after, daemon=True, name="resnas claim")

    def __enter__(self) -> SharedClaim:
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with self._lock, contextlib.suppress(Exception):
            self._connection.close()
        self._keeper.join()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Enter a section in which no other coordinator of this study is while the connection holds: `has_turn` tells.

        Raises:
            ResnasError: the storage is away, or another coordinator does not leave the section.
        """
        with self._section:
            if self._turn is not None:
                yield
                return
            try:
                self._wait_for_turn()
                yield
            finally:
                self._give_turn_back()

    def has_turn(self) -> bool:
        """Whether this connection has held the turn all along; False also where the server does not answer."""
        with self._lock, contextlib.suppress(Exception):
            if self._turn is not None and self._turn is self._connection and not self._turn.invalidated:
                mine = f"SELECT count(*) FROM ({HOLDERS}) AS holders WHERE pid = pg_backend_pid()"
                return bool(_execute(self._turn, mine, key=self._turn_key))
        return False

    def is_alive(self, owner: str) -> bool:
        """Whether the coordinator of this name holds its lock, or may take it again soon. Raises ResnasError."""
        if owner == self.owner:
            return True
        # shared, so that two who look at the same time do not take each other for the owner
        free = self._ask("SELECT pg_try_advisory_xact_lock_shared(:key)", key=self._key(owner))
        if not free:
            self._missing_since.pop(owner, None)
            return True
        if _process_is_gone(owner):
            return False
        return time.monotonic() - self._missing_since.setdefault(owner, time.monotonic()) < GRACE_S

    @property
    def _turn_key(self) -> int:
        return lock_key("turn", self._name)

    @property
    def _between_key(self) -> int:
        return lock_key("between turns", self._name)

    def _key(self, owner: str) -> int:
        return lock_key("coordinator", self._name, owner)

    def _wait_for_turn(self) -> None:
        deadline = time.monotonic() + TURN_S
        while True:
            if self._take_turn():
                if (wait_s := self._settled_at - time.monotonic()) <= 0:
                    return
                time.sleep(wait_s)
                if self.has_turn():
                    return
                self._give_turn_back()
            if time.monotonic() > deadline:
                raise ResnasError(
                    f"another coordinator of the study {self._name!r} has been in the way for {TURN_S:g} s"
                )

    def _take_turn(self) -> bool:
        """Wait a few seconds for the turn; return whether it was had."""
        with self._lock:
            before = None
            if not self._ask("SELECT pg_try_advisory_lock(:key)", key=self._turn_key):
                before = self._ask(HOLDERS, key=self._turn_key)
                try:
                    self._ask("SELECT pg_advisory_lock(:key)", key=self._turn_key)
                except Exception as error:
                    if _is_waiting(error):
                        return False
                    raise
            self._turn = self._connection
            has_ended = f"SELECT count(*) FROM ({HOLDERS}) AS holders WHERE pid = :pid"
            if before is not None and not self._ask(has_ended, key=self._between_key, pid=before):
                self._settled_at = time.monotonic() + SETTLE_S
            if self._between is self._connection:
                self._ask("SELECT pg_advisory_unlock_shared(:key)", key=self._between_key)
            self._between = None
            return True

    def _give_turn_back(self) -> None:
        with self._lock, contextlib.suppress(Exception):
            had, self._turn = self._turn, None
            if had is not None and not self._connection.invalidated:  # one that broke has given it back already
                _execute(self._connection, "SELECT pg_advisory_lock_shared(:key)", key=self._between_key)
                self._between = self._connection
                _execute(self._connection, "SELECT pg_advisory_unlock(:key)", key=self._turn_key)

    def _ask(self, statement: str, **values: Any) -> Any:
        """Return the value of a statement; a broken connection is made again."""
        with self._lock:
            while True:
                if self._lost is not None:
                    raise self._lost
                try:
                    if not self._connection.invalidated:
                        return _execute(self._connection, statement, **values)
                    self._take_again()  # SQLAlchemy would connect again without the lock
                except Exception as error:
                    if _is_waiting(error) or not is_transient(error):
                        raise
                    self._take_again()

    def _take(self) -> None:
        """Connect and take this coordinator's lock, and its turn where it had that and nobody has taken it."""
        connection = _connect(self._location)
        try:
            for setting, value in SETTINGS.items():
                _execute(connection, f"SET {setting} = '{value}'")
            _execute(connection, "SELECT pg_advisory_lock(:key)", key=self._key(self.owner))
            if self._turn is not None:
                _execute(connection, "SELECT pg_try_advisory_lock(:key)", key=self._turn_key)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _take_again(self) -> None:
        """Take the lock again on a new connection; the server may hold it for the broken one a while longer."""
        with contextlib.suppress(Exception):
            self._connection.close()
        deadline = time.monotonic() + PATIENCE_S
        while not self._closing.is_set():
            try:
                self._take()
            except Exception as error:
                if time.monotonic() > deadline or not is_transient(error):
                    self._lost = ResnasError(
                        f"the claim on the study {self._name!r} was lost, its storage {self._location.shown} is away: "
                        f"{messages(error)}"
                    )
                    raise self._lost from error
                self._closing.wait(0.5)
            else:
                self._settled_at = time.monotonic() + SETTLE_S
                self._missing_since.clear()
                return

    def _look_after(self) -> None:
        while not self._closing.wait(LOOK_AFTER_S):
            with contextlib.suppress(Exception), self._lock:
                if not self._closing.is_set():
                    self._ask("SELECT 1")


def _connect(location: Location) -> Any:
    """Return a connection of its own, every statement of which counts at once."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    options = {"connect_args": engine_options(location)["connect_args"]}
    return create_engine(location.url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **options).connect()


def _execute(connection: Any, statement: str, **values: Any) -> Any:
    from sqlalchemy import text

    try:
        result = connection.execute(text(statement), values)
        value = result.scalar() if result.returns_rows else None
        connection.commit()  # nothing in the database: it ends SQLAlchemy's own notion of a transaction
    except BaseException:
        if not connection.invalidated:
            connection.rollback()
        raise
    return value


def _is_waiting(error: BaseException) -> bool:
    """Whether a lock was not had in time."""
    return any("lock timeout" in str(getattr(one, "orig", "")) for one in causes(error))


def _process_is_gone(owner: str) -> bool:
    """Whether a coordinator of this machine has no process any more."""
    host, process, _ = owner.rsplit(":", 2)
    return host == platform.node() and not (Path("/proc") / process).exists() and os.path.isdir("/proc/self")
