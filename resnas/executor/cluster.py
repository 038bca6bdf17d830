"""Joining a Ray cluster, or starting one on this machine: errors in one sentence, the user's code sent along, and none
of Ray's messages in the terminal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from resnas.errors import InputError, ResnasError
from resnas.executor.shipping import stage

REACHABLE_S = 5.0
"""How long a cluster may take to accept a connection."""
ANSWER_S = 15.0
"""How long it may take to answer, the start of the process that asks included."""
SIGN_OF_LIFE = (
    "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).check_alive([], timeout=5)"
)
"""An inner name of Ray's, which may be gone in a later version: then nothing is asked, and Ray says what is wrong."""
LOCAL = "local"
"""What Ray calls a cluster that is started on this machine and ends with this process."""


class Cluster:
    """A connection of this process to a cluster, which gets the code that trials need.

    Args:
        address: `host:port`, or `auto` for the cluster on this machine; None takes `RAY_ADDRESS`, and where this is
            not set starts a cluster that ends with this process.
        names: `package.module:Class` of the user's classes.

    Raises:
        InputError: Ray is not installed, or the cluster cannot be used.
        ResnasError: this process is connected to Ray already.
    """

    def __init__(self, address: str | None, names: Iterable[str]) -> None:
        address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        self._files: str | None = None
        if address not in (LOCAL, "auto"):
            _check_reachable(address)
        elif address == LOCAL and "RAY_TMPDIR" not in os.environ:
            # Of our own, to be removed: the folder that Ray leaves its logs in may belong to another user. Not in
            # TMPDIR, as the paths of its sockets must be short
            self._files = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if Path("/tmp").is_dir() else None)
        try:
            self.ray = _connect(address, names, self._files)
        except BaseException:
            self._remove_files()
            raise

    def close(self) -> None:
        """Leave the cluster; end it where it was started here."""
        self.ray.shutdown()
        self._remove_files()

    def _remove_files(self) -> None:
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)


def _connect(address: str, names: Iterable[str], files: str | None) -> Any:
    """Connect this process to a cluster and send it what `names` need; return the module `ray`."""
    try:
        import ray
    except ImportError:
        raise InputError("the executor `ray` needs Ray; install it with: pip install 'resnas[ray]'") from None
    if ray.is_initialized():
        raise ResnasError("this process is connected to a Ray cluster already; disconnect with ray.shutdown() first")
    if address not in (LOCAL, "auto"):
        _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a slot hides GPUs itself; no warning about it
    local: dict[str, Any] = {"include_dashboard": False, "_temp_dir": files} if address == LOCAL else {}
    with tempfile.TemporaryDirectory(prefix="resnas-") as folder, _signal_handlers_kept():
        stage(Path(folder), names)
        try:
            ray.init(
                address,
                runtime_env={"working_dir": folder},
                **local,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (Exception, SystemExit) as error:
            ray.shutdown()
            raise InputError(_refusal(address, error)) from error
    _silence(ray)
    return ray


def _check_reachable(address: str) -> None:
    """Try to connect: Ray itself would try for more than a minute. Raises InputError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(f"the Ray address must be host:port, or auto for the cluster of this machine, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHABLE_S).close()
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"no Ray cluster answers at {address} ({cause}); was it started with ray start?") from error


def _check_answers(address: str) -> None:
    """Ask for a sign of life, in a process of its own: Ray would try for minutes, or abort without a token file.

    Raises:
        InputError: it does not answer as Ray does, or wants another token.
    """
    try:
        done = subprocess.run([sys.executable, "-c", SIGN_OF_LIFE, address], capture_output=True, timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        raise InputError(f"what listens at {address} does not answer as a Ray cluster does") from None
    if b"InvalidAuthToken" in done.stderr or b"AuthenticationError" in done.stderr or b"AUTH_TOKEN" in done.stderr:
        raise InputError(
            f"the Ray cluster at {address} refuses this process, as its token is missing or wrong; set RAY_AUTH_MODE, "
            "and RAY_AUTH_TOKEN_PATH where the token is not in ~/.ray/auth_token, as on the cluster"
        )


def _refusal(address: str, error: BaseException) -> str:
    """Say in one sentence why Ray refused."""
    text = str(error)
    if "was started with" in text:  # a table of the versions of both sides, one a line
        versions = [line.strip() for line in text.split("\n") if line.strip().startswith(("Ray:", "Python:"))]
        return (
            f"the Ray cluster at {address} has other versions ({', '.join(versions[:2])}) than this process "
            f"({', '.join(versions[2:])}); they must be the same"
        )
    first = " ".join(text.split()).split(". ")[0].rstrip(".") or type(error).__name__
    return f"cannot use the Ray cluster at {address}: {first}"


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Put back the handlers that Ray replaces when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence(ray: Any) -> None:
    """Keep what Ray prints about lost nodes, with pages of their logs, out of the terminal: trials say it in a line.

    Ray has no option for that; where this name is gone from a later version, its messages are seen again.
    """
    if hasattr(ray._private.worker, "print_to_stdstream"):
        ray._private.worker.print_to_stdstream = lambda *arguments, **options: None


def room(node: dict[str, Any], needs: dict[str, float]) -> int:
    """Return how many trials a node has room for, other work on it not counted."""
    has = node["Resources"]
    return min(int(has.get(kind, 0) / amount + 1e-9) for kind, amount in needs.items() if amount)


def named(nodes: list[dict[str, Any]]) -> str:
    """Return the nodes with what they have, for people."""
    described = []
    for node in nodes:
        has = ", ".join(f"{node['Resources'].get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
        described.append(f"{node['NodeManagerHostname']} ({has})")
    return "; ".join(described)
