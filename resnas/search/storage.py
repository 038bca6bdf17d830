"""From the URL of a storage to the Optuna storage: which one a study uses, what each kind needs to be safe, and the
sentence where it cannot be used, without the password that a URL may hold.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from optuna.storages import BaseStorage

from resnas.errors import InputError
from resnas.passwords import STORAGE_VARIABLES, without_passwords
from resnas.search.journal import open_journal
from resnas.search.patience import PatientStorage, messages
from resnas.study import Study

Kind = Literal["sqlite", "journal", "postgresql"]
JOURNAL_ENDINGS = (".log", ".journal")
BUSY_S = 60
"""How long SQLite waits while another process writes."""
CONNECT_S = 10
POSTGRESQL = {
    "connect_timeout": CONNECT_S,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    "application_name": "resnas",
}
"""libpq options by which a server that is gone is noticed within half a minute; those in the URL go first."""
MOUNTS = Path("/proc/self/mounts")
NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "pvfs2",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse",
}  # fmt: skip
"""File systems on which SQLite's locks and shared memory do not reach the other machines."""


@dataclass(frozen=True)
class Location:
    """Where the trials of a study are kept."""

    kind: Kind
    url: str = field(repr=False)
    """What SQLAlchemy takes; of a journal, its path."""
    path: Path | None
    """The file, where it is one."""
    given_by: str
    """What names it, for messages."""

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return without_passwords(self.url, self.url)


def locate(study: Study, environment: Mapping[str, str] = os.environ) -> Location:
    """Return where a study is kept: its `storage`, else RESNAS_STORAGE, else OPTUNA_STORAGE, else its results folder.

    Relative paths of files are relative to the study file.

    Raises:
        InputError: PostgreSQL is asked for without a driver, a database in memory, or one of another kind, where
            nothing would keep two machines from taking each other's trials for those of a dead coordinator.
    """
    variable = next((name for name in STORAGE_VARIABLES if environment.get(name)), "")
    given = study.storage or environment.get(variable, "")
    given_by = f"{study.path}: storage" if study.storage or not variable else variable
    beside = study.path.parent
    scheme = given.partition(":")[0].lower()
    if not given:
        path = study.results_folder / "study.db"
        return Location("sqlite", f"sqlite:///{path}", path, given_by)
    if scheme == "journal" or ("://" not in given and given.endswith(JOURNAL_ENDINGS)):
        path = beside / re.sub(r"^journal:(///)?", "", given, flags=re.IGNORECASE)
        return Location("journal", str(path), path, given_by)
    if scheme.startswith("postgres"):
        return Location("postgresql", _with_driver(given, given_by), None, given_by)
    if not scheme.startswith("sqlite"):
        shown = scheme if "://" in given else "the URL given"
        raise InputError(
            f"{given_by}: cannot use {shown}: a study is kept in SQLite (sqlite:///FILE), in a journal (journal:FILE) "
            "or in PostgreSQL (postgresql://USER@HOST/DATABASE)"
        )
    name = given.partition(":///")[2]
    if name == ":memory:" or not name:
        raise InputError(f"{given_by}: cannot use {given}: it would be gone with the process; name a file")
    if name.startswith("file:"):
        return Location("sqlite", given, None, given_by)
    name, _, query = name.partition("?")
    return Location("sqlite", f"sqlite:///{beside / name}" + (f"?{query}" if query else ""), beside / name, given_by)


def _with_driver(url: str, given_by: str) -> str:
    """Let a plain URL use the driver that is there. Raises InputError where there is none."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return url
    drivers = [name for name in ("psycopg", "psycopg2") if importlib.util.find_spec(name) is not None]
    if not drivers:
        raise InputError(f"{given_by}: {_driver_missing(url)}")
    return f"postgresql+{drivers[0]}://{rest}"


def _driver_missing(url: str) -> str:
    return f"cannot use {without_passwords(url)}: PostgreSQL needs a driver; install it: pip install 'resnas[postgres]'"


def refuse_network_file_system(location: Location) -> None:
    """Raise InputError where an SQLite file would lie on a network file system."""
    if location.kind != "sqlite" or location.path is None or (mount := network_mount(location.path)) is None:
        return
    raise InputError(
        f"{location.given_by}: cannot use {location.shown}: SQLite is not safe on a network file system ({mount}); set "
        "storage to a journal (journal:study.journal) or a PostgreSQL URL, or move the study file to a local disk"
    )


def network_mount(path: Path) -> str | None:
    """Return type and mount point of the network file system that a file lies on; None where it is a local one."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return None
    real = path.resolve()
    found = ("", "")
    for line in lines:
        _, point, kind = [re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), part) for part in line.split()[:3]]
        # the longest mount point counts, and of several on one point the last
        if real.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, kind)
    return f"{found[1]} at {found[0]}" if found[1] in NETWORK else None


def open_storage(location: Location, make: bool = True) -> BaseStorage:
    """Return the Optuna storage; one that does not answer fails within seconds rather than minutes.

    Args:
        location: where it is.
        make: whether to make the file or the tables if they do not exist.

    Raises:
        FileNotFoundError: it does not exist and shall not be made.
        Exception: whatever Optuna and the driver raise; `refusal` makes it a sentence.
    """
    if not make and location.path is not None and not location.path.is_file():
        raise FileNotFoundError(location.path)
    if location.kind == "journal":
        return open_journal(Path(location.url))
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return PatientStorage(
                location.url.replace("{", "{{").replace("}", "}}"),  # Optuna formats it
                engine_kwargs=engine_options(location),
                skip_table_creation=not make,
                shown=location.shown,
            )
        except Exception as error:
            text = messages(error)
            if not make and ("no such table" in text or "UndefinedTable" in text):
                raise FileNotFoundError(location.shown) from error
            # two processes that make the same tables at the same time: one of them is told that they exist
            if not re.search(r"already exists|UNIQUE constraint|duplicate key", text) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def engine_options(location: Location) -> dict[str, Any]:
    """Return SQLAlchemy's options for an engine of SQLite or PostgreSQL."""
    if location.kind == "sqlite":
        return {"connect_args": {"timeout": BUSY_S, "factory": DurableConnection}}
    from sqlalchemy.engine import make_url

    in_url = make_url(location.url).query
    arguments = {name: value for name, value in POSTGRESQL.items() if name not in in_url}
    return {"pool_pre_ping": True, "pool_size": 2, "max_overflow": 8, "connect_args": arguments}


class DurableConnection(sqlite3.Connection):
    """SQLite with a write-ahead log: readers do not disturb the writer, and nothing told is lost with the power."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        with contextlib.suppress(sqlite3.OperationalError):  # a file that can only be read stays as it is
            self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = FULL")


def refusal(location: Location, error: BaseException) -> InputError:
    """Say that a storage cannot be used, without its password."""
    from sqlalchemy.exc import ArgumentError

    if location.kind == "postgresql" and isinstance(error, ImportError):
        return InputError(f"{location.given_by}: {_driver_missing(location.url)}")
    shown = "the URL given" if isinstance(error, ArgumentError) else location.shown
    cause = str(getattr(error, "orig", None) or error.__cause__ or error).strip().split("\n")[0]
    return InputError(f"{location.given_by}: cannot use {shown}: {without_passwords(cause, location.url)}")
