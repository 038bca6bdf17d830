"""Trials on the nodes of a Ray cluster: one actor per trial at a time, which hosts a local executor on its node.

Slots come and go with the nodes. A trial whose node is lost ends with that cause; who runs it again is the coordinator.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnas.atomic import write_bytes
from resnas.errors import InputError, ResnasError
from resnas.executor.cluster import Cluster, named, room
from resnas.executor.events import Aborted, Ended, Limits, Reported
from resnas.executor.process import cause_of
from resnas.executor.slot import TOKEN, Files, Slot
from resnas.trial import TrialResult, TrialSpec

POLL_S = 0.2
FIRST_SLOT_S = 60.0
"""How long to wait for room in the cluster before giving up."""
ALL_SLOTS_S = 5.0
"""How long to wait at the start for further slots."""
GROW_EVERY_S = 2.0
"""How often to look for new nodes."""
NO_NODE_S = 120.0
"""How long trials wait for a node, once there is none, before the search ends."""


@dataclass
class _RemoteSlot:
    actor: Any
    place: str = ""
    number: int | None = None
    """The trial that runs there."""
    folder: Path = Path()
    """Of this trial, on the coordinator's machine."""


class RayExecutor:
    """Trials on a Ray cluster, which is started on this machine where no address is given.

    Args:
        address: `host:port` of a running cluster, or `auto` for the one on this machine; None takes `RAY_ADDRESS`.
        workers: trials at the same time at most; None is as many as the nodes have room for.
        threads: CPU threads of a trial.
        cpus_per_trial: what a trial takes of the CPUs of its node.
        gpus_per_trial: what a trial takes of a GPU of its node.
        names: `package.module:Class` of the user's classes; their modules are sent to the nodes.

    Raises:
        InputError: Ray is not installed, the cluster cannot be used, or no node has what a trial needs.
        ResnasError: no node has room, or none can start trials.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        threads: int = 1,
        cpus_per_trial: float = 1,
        gpus_per_trial: float = 0,
        names: Iterable[str] = (),
    ) -> None:
        self._workers = workers
        self._needs = {"CPU": cpus_per_trial, "GPU": gpus_per_trial}
        self._slots: list[_RemoteSlot] = []
        self._aborted = False
        self._starting: dict[Any, _RemoteSlot] = {}
        """Slots that do not answer yet, by the call that they will answer."""
        self._calls: dict[Any, _RemoteSlot] = {}
        """Slots whose trial runs, by the call that returns when something happens."""
        self._queue: deque[tuple[int, TrialSpec, Limits]] = deque()
        """Trials that wait for a slot."""
        self._grown_s = self._last_slot_s = time.monotonic()
        self._start_error = ""
        self._stopped = False
        self._cluster = Cluster(address, names)
        self._ray = self._cluster.ray
        self._actor_class = self._ray.remote(
            num_cpus=cpus_per_trial,
            num_gpus=gpus_per_trial,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Slot)
        self._arguments = (threads, gpus_per_trial > 0, os.getcwd())
        try:
            self._wait_for_slots()
        except BaseException:
            self.stop()
            raise

    @property
    def slots(self) -> int:
        """Trials that may run at the same time; a trial that is submitted while there is no node waits for one."""
        return max(1, len(self._slots))

    def submit(self, number: int, spec: TrialSpec, limits: Limits) -> str:
        """Start a trial, or let it wait for a node; return where it runs."""
        self._queue.append((number, spec, limits))
        self._start_queued()
        return next((slot.place for slot in self._slots if slot.number == number), "waiting for a node")

    def events(self, timeout_s: float) -> list[Reported | Ended]:
        """Return reports and endings.

        Raises:
            ResnasError: all nodes are gone and none has come.
        """
        self._grow()
        waiting = [*self._starting, *self._calls]
        if not waiting:
            time.sleep(timeout_s)
            return []
        self._ray.wait(waiting, timeout=timeout_s)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        events = []
        for reference in ready:
            if reference in self._starting:
                self._started(reference)
            else:
                events.append(self._event(reference))
        self._start_queued()
        return events

    def answer(self, number: int, prune: bool) -> None:
        """Answer a report."""
        for slot in self._slots:
            if slot.number == number:
                self._calls[slot.actor.proceed.remote(number, prune)] = slot

    def stop(self) -> None:
        """Kill every slot, and its trial with it; leave the cluster, and end it where it was started here.

        After that this executor is of no use; to stop it again does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        for slot in [*self._slots, *self._starting.values()]:
            self._kill(slot)
        for waiting in (self._slots, self._starting, self._calls, self._queue):
            waiting.clear()
        self._cluster.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, computed on a node.

        Raises:
            Aborted: `abort` was called.
            ResnasError: what the function raised; an InputError stays one.
        """
        if not self._slots:
            self._wait_for_slots()
        slot = min(self._slots, key=lambda one: one.number is not None)
        answer = slot.actor.call.remote(function, *arguments)
        while not self._ray.wait([answer], timeout=POLL_S)[0]:
            if self._aborted:
                raise Aborted("stopped while the data were being read")
        try:
            error, value = self._ray.get(answer)
        except self._ray.exceptions.RayError as lost:
            raise ResnasError(f"a Ray node failed ({slot.place}): {_first_line(lost)}") from lost
        if error is not None:
            raise error
        return value

    def abort(self) -> None:
        """Give up a call; `stop` ends what computes it."""
        self._aborted = True

    def _wait_for_slots(self) -> None:
        """Wait until the cluster has given at least one slot, and a little for the others."""
        nodes = self._nodes()
        if not any(room(node, self._needs) for node in nodes):
            asked = ", ".join(f"{amount:g} {kind}" for kind, amount in self._needs.items() if amount)
            raise InputError(f"no node of the Ray cluster has {asked} for a trial; there are: {named(nodes)}")
        self._grow(now=True)
        started_s = time.monotonic()
        while self._starting:
            patience_s = ALL_SLOTS_S if self._slots else FIRST_SLOT_S
            ready, _ = self._ray.wait(list(self._starting), timeout=max(0, started_s + patience_s - time.monotonic()))
            if not ready:
                break
            for reference in ready:
                self._started(reference)
        if not self._slots and self._start_error:
            raise ResnasError(f"no Ray node can run trials: {self._start_error}")
        if not self._slots:
            raise ResnasError(f"the Ray cluster had no room for a trial in {FIRST_SLOT_S:g} s: {named(nodes)}")

    def _grow(self, now: bool = False) -> None:
        """Ask for as many slots as the nodes have room for, which is more when a node has joined."""
        if not now and time.monotonic() - self._grown_s < GROW_EVERY_S:
            return
        self._grown_s = time.monotonic()
        wanted = self._workers or sum(room(node, self._needs) for node in self._nodes())
        for _ in range(wanted - len(self._slots) - len(self._starting)):
            actor = self._actor_class.remote(*self._arguments)
            self._starting[actor.place.remote()] = _RemoteSlot(actor)
        if self._slots or not self._queue:
            self._last_slot_s = time.monotonic()
        elif time.monotonic() - self._last_slot_s > NO_NODE_S:
            why = f"; the last one failed: {self._start_error}" if self._start_error else ""
            raise ResnasError(f"no Ray node has run trials for {NO_NODE_S:g} s{why}")

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _started(self, reference: Any) -> None:
        """Take up a slot that answers, or forget one that could not start."""
        slot = self._starting.pop(reference)
        try:
            slot.place = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._start_error = _first_line(error)
            self._kill(slot)
        else:
            self._slots.append(slot)

    def _start_queued(self) -> None:
        for slot in self._slots:
            if slot.number is None and self._queue:
                slot.number, spec, limits = self._queue.popleft()
                slot.folder = Path(spec.folder).absolute()
                slot.folder.mkdir(parents=True, exist_ok=True)
                token = write_token(slot.folder)
                spec = TrialSpec(**{**vars(spec), "folder": str(slot.folder)})
                self._calls[slot.actor.begin.remote(slot.number, spec, limits, token)] = slot

    def _event(self, reference: Any) -> Reported | Ended:
        """Return what a call has brought, and free its slot with an ending; give up a slot that is lost."""
        slot = self._calls.pop(reference)
        assert slot.number is not None
        event: Reported | Ended
        try:
            event, files = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._slots.remove(slot)
            self._kill(slot)
            self._grow(now=True)
            event, files = Ended(slot.number, lost(error, slot.place)), {}
        if isinstance(event, Ended):
            slot.number = None
            with contextlib.suppress(OSError):
                (slot.folder / TOKEN).unlink()
            event = _with_files(event, slot.folder, files)
        return event

    def _kill(self, slot: _RemoteSlot) -> None:
        with contextlib.suppress(Exception):  # it may be dead, and Ray has many ways to say so
            self._ray.kill(slot.actor)


def write_token(folder: Path) -> str:
    """Put a text into a trial's folder that only a machine which shares the folder can read; return it."""
    token = secrets.token_hex()
    (folder / TOKEN).write_text(token, encoding="utf-8")
    return token


def lost(error: Exception, place: str) -> TrialResult:
    """Say why a slot does not answer: Ray killed it for memory, its node or process is gone, or it is broken."""
    from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError

    if isinstance(error, OutOfMemoryError) or "memory pressure" in str(error):
        return TrialResult.failure("out of memory", f"killed by Ray, as the memory of its node was used up ({place})")
    if isinstance(error, RayActorError | NodeDiedError | ObjectLostError):
        return TrialResult.failure("node lost", f"the node, or the process there that looked after it, died ({place})")
    return TrialResult.failure("exception", f"{_first_line(error)} ({place})")


def _with_files(event: Ended, folder: Path, files: Files) -> Ended:
    """Write the files of a trial whose node does not share its folder; where that fails, so does the trial."""
    try:
        for name, content in files.items():
            write_bytes(folder / name, content)
    except OSError as error:
        return Ended(event.number, TrialResult.failure(cause_of(error), f"its files cannot be written: {error}"))
    return event


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).strip().split("\n")) if line.strip()), repr(error))
