"""The live view of a search: what runs and what is best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from resnas.cli.live import LiveView, elapsed
from resnas.results import COUNTED

if TYPE_CHECKING:
    from resnas.search import Snapshot


class SearchView(LiveView):
    """Shows snapshots of a search."""

    def __call__(self, snapshot: Snapshot) -> None:
        """Show how the search stands."""
        done = sum(snapshot.endings[ending] for ending in COUNTED)
        counts = [f"{done}/{snapshot.total} trials", f"{len(snapshot.running)} running"]
        counts += [
            f"{snapshot.endings[kind]} {kind}" for kind in ("pruned", "failed", "retried") if snapshot.endings[kind]
        ]
        lines = [elapsed(snapshot.elapsed_s, snapshot.left_s)]
        if snapshot.best is not None:
            best = snapshot.best
            lines.append(Text(f"best {best.metric} {best.value:.4g}: trial {best.number}, {best.label}", style="green"))
        for running in snapshot.running:
            name = f"trial {running.proposal.trial.number}"
            lines.append(self.running(running.step, running.started_s, running.proposal.architecture.label, name))
        self.show(done, snapshot.total, snapshot.last, " · ".join(counts), lines)
