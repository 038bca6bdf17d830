"""One place for a trial on a node of a Ray cluster: the code that runs there. Ray itself is not needed to read it.

A slot hosts a `LocalExecutor` with one worker, so that a trial is on a node what it is on the coordinator's machine: a
fresh process with limits, whose ending has a reason.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from resnas.errors import ResnasError
from resnas.executor.events import Ended, Limits, Reported
from resnas.executor.local import LocalExecutor
from resnas.executor.process import cause_of
from resnas.trial import TrialResult, TrialSpec

TICK_S = 0.2
"""How often a slot looks at the time limit of its trial."""
TOKEN = ".coordinator"
"""File in a trial's folder by which a node sees that it shares this folder with the coordinator."""
TEMPORARY = "resnas-slot-"
"""Begins the name of the folder of a slot that shares none with the coordinator; its process number follows."""

Files = dict[str, bytes]
"""What a trial has written, by path relative to its folder."""


class Slot:
    """Runs one trial at a time. Its caller waits for `begin` or `proceed` to return, and has no other call under way.

    Args:
        threads: CPU threads of a trial.
        gpu: a trial may use the GPU that Ray has given to this slot; otherwise it computes on the CPU.
        working_folder: that of the coordinator; relative paths in a task mean the same here where it exists.
    """

    def __init__(self, threads: int, gpu: bool, working_folder: str) -> None:
        # Otherwise every trial would import the main script of Ray's workers, and with it the whole of Ray
        vars(sys.modules["__main__"]).pop("__file__", None)
        if not gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides GPUs only from those that ask for a share of one
        self._executor = LocalExecutor(1, threads)
        self._temporary: Path | None = None
        _sweep()
        # After the fork server has started: it shall import the shipped modules, which lie in its working folder
        if Path(working_folder).is_dir():
            os.chdir(working_folder)

    def place(self) -> str:
        """Return where this slot is, for people."""
        return f"{platform.node()}, slot process {os.getpid()}"

    def begin(self, number: int, spec: TrialSpec, limits: Limits, token: str) -> tuple[Reported | Ended, Files]:
        """Start a trial and return the first that happens, and with its ending the files that must be sent.

        Args:
            number: of the trial.
            spec: what it is told.
            limits: its limits.
            token: text of the file `TOKEN` that the coordinator has put into the trial's folder.
        """
        self._temporary = None if _shared(Path(spec.folder), token) else _temporary_folder()
        try:
            self._executor.submit(number, replace(spec, folder=str(self._temporary or spec.folder)), limits)
        except OSError as error:
            return self._with_files(Ended(number, TrialResult.failure(cause_of(error), str(error))))
        return self._next()

    def proceed(self, number: int, prune: bool) -> tuple[Reported | Ended, Files]:
        """Answer the report of the trial and return what happens next."""
        self._executor.answer(number, prune)
        return self._next()

    def call(self, function: Callable[..., Any], *arguments: Any) -> tuple[ResnasError | None, Any]:
        """Return the error or the value of `function(*arguments)`."""
        try:
            return None, self._executor.call(function, *arguments)
        except ResnasError as error:
            return error, None

    def _next(self) -> tuple[Reported | Ended, Files]:
        while not (events := self._executor.events(TICK_S)):
            pass
        return self._with_files(events[0])

    def _with_files(self, event: Reported | Ended) -> tuple[Reported | Ended, Files]:
        if self._temporary is None or isinstance(event, Reported):
            return event, {}
        paths = [path for path in self._temporary.rglob("*") if path.is_file()]
        files = {str(path.relative_to(self._temporary)): path.read_bytes() for path in paths}
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary = None
        return event, files


def _shared(folder: Path, token: str) -> bool:
    """Is this folder the one that the coordinator sees under the same path, and can it be written from here?"""
    try:
        return (folder / TOKEN).read_text(encoding="utf-8") == token and os.access(folder, os.W_OK)
    except OSError:
        return False


def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-"))


def _sweep() -> None:
    """Remove what slots have left here that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*-*"):
        with contextlib.suppress(OSError, ValueError):
            process = int(folder.name.removeprefix(TEMPORARY).partition("-")[0])
            if not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
                shutil.rmtree(folder)
