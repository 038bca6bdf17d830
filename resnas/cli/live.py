"""The live view of a search: a progress bar with what runs and what is best; plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from resnas.cli.tables import clock, make_console
from resnas.results import COUNTED

if TYPE_CHECKING:
    from resnas.search import Snapshot


class LiveView:
    """Shows snapshots; use as a context manager."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._console = make_console()
        self._progress = Progress(TextColumn("[bold]{task.fields[counts]}"), BarColumn(), TaskProgressColumn())
        self._task = self._progress.add_task("search", total=None, counts="")
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._last = ""

    def __enter__(self) -> LiveView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """Show how the search stands."""
        done = sum(snapshot.endings[ending] for ending in COUNTED)
        if snapshot.last != self._last:
            self._last = snapshot.last
            self._console.print(
                f"[dim]{done:>4}/{snapshot.total}[/dim] {escape(snapshot.last)}", highlight=False, soft_wrap=True
            )
        if not self._console.is_terminal:
            return
        counts = [f"{done}/{snapshot.total} trials", f"{len(snapshot.running)} running"]
        counts += [
            f"{snapshot.endings[kind]} {kind}" for kind in ("pruned", "failed", "retried") if snapshot.endings[kind]
        ]
        self._progress.update(self._task, total=snapshot.total, completed=done, counts=" · ".join(counts))
        self._live.update(Group(self._progress, *self._lines(snapshot)))

    def _lines(self, snapshot: Snapshot) -> list[Text]:
        left = "" if snapshot.left_s is None else f", about {clock(snapshot.left_s)} left"
        lines = [Text(f"{clock(snapshot.elapsed_s)} elapsed{left}")]
        if snapshot.best is not None:
            best = snapshot.best
            lines.append(Text(f"best {best.metric} {best.value:.4g}: trial {best.number}, {best.label}", style="green"))
        for running in snapshot.running:
            age = clock(time.monotonic() - running.started_s)
            lines.append(
                Text(
                    f"  trial {running.proposal.trial.number} · step {running.step}/{self._steps} · {age} · "
                    f"{running.proposal.architecture.label}",
                    style="dim",
                )
            )
        return lines
