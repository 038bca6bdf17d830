"""A live view of work under way: a progress bar and lines below it; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from resnas.cli.tables import clock

View = TypeVar("View", bound="LiveView")


class LiveView:
    """Use as a context manager."""

    def __init__(self, steps: int, console: Console) -> None:
        self._steps = steps
        self._console = console
        self._progress = Progress(TextColumn("[bold]{task.fields[counts]}"), BarColumn(), TaskProgressColumn())
        self._task = self._progress.add_task("", total=None, counts="")
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._last = ""

    def __enter__(self: View) -> View:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, done: int, total: int, last: str, counts: str, lines: Sequence[Text]) -> None:
        """Show how the work stands: a line for what ended last, once; the bar with its counts; the lines."""
        if last != self._last:
            self._last = last
            self._console.print(f"[dim]{done:>4}/{total}[/dim] {escape(last)}", highlight=False, soft_wrap=True)
        if self._console.is_terminal:
            self._progress.update(self._task, total=total, completed=done, counts=counts)
            self._live.update(Group(self._progress, *lines))

    def running(self, step: int, started_s: float, label: str, name: str = "") -> Text:
        """Return the line of something that is trained."""
        age = clock(time.monotonic() - started_s)
        parts = [part for part in (name, f"step {step}/{self._steps}", age, label) if part]
        return Text(f"  {' · '.join(parts)}", style="dim")


def elapsed(elapsed_s: float, left_s: float | None) -> Text:
    """Return the line of the time that has passed, and of what is left where that is known."""
    left = "" if left_s is None else f", about {clock(left_s)} left"
    return Text(f"{clock(elapsed_s)} elapsed{left}")
