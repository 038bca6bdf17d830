"""The live view of a list of runs: what runs, and the time left."""

from __future__ import annotations

from resnas.cli.live import LiveView, elapsed
from resnas.runs import RunsSnapshot


class RunsView(LiveView):
    """Shows snapshots of a list of runs."""

    def __call__(self, snapshot: RunsSnapshot) -> None:
        """Show how the runs stand."""
        counts = f"{snapshot.stage}: {snapshot.done}/{snapshot.expected} runs · {len(snapshot.running)} running"
        lines = [elapsed(snapshot.elapsed_s, snapshot.left_s)]
        lines += [self.running(running.step, running.started_s, running.run.label) for running in snapshot.running]
        self.show(snapshot.done, snapshot.expected, snapshot.last, counts, lines)
