"""The live view of a list of runs: a progress bar with what runs and the time left; plain lines without a terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from resnas.cli.tables import clock
from resnas.runs import RunsSnapshot


class RunsView:
    """Shows snapshots; use as a context manager."""

    def __init__(self, steps: int, console: Console) -> None:
        self._steps = steps
        self._console = console
        self._progress = Progress(TextColumn("[bold]{task.fields[counts]}"), BarColumn(), TaskProgressColumn())
        self._task = self._progress.add_task("runs", total=None, counts="")
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._last = ""

    def __enter__(self) -> RunsView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, snapshot: RunsSnapshot) -> None:
        """Show how the runs stand."""
        if snapshot.last != self._last:
            self._last = snapshot.last
            self._console.print(
                f"[dim]{snapshot.done:>4}/{snapshot.expected}[/dim] {escape(snapshot.last)}",
                highlight=False,
                soft_wrap=True,
            )
        if not self._console.is_terminal:
            return
        counts = f"{snapshot.stage}: {snapshot.done}/{snapshot.expected} runs · {len(snapshot.running)} running"
        self._progress.update(self._task, total=snapshot.expected, completed=snapshot.done, counts=counts)
        left = "" if snapshot.left_s is None else f", about {clock(snapshot.left_s)} left"
        lines = [Text(f"{clock(snapshot.elapsed_s)} elapsed{left}")]
        for running in snapshot.running:
            age = clock(time.monotonic() - running.started_s)
            lines.append(Text(f"  step {running.step}/{self._steps} · {age} · {running.run.label}", style="dim"))
        self._live.update(Group(self._progress, *lines))
