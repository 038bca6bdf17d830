"""Where the trials of a study run, and what each of them takes there."""

from __future__ import annotations

from typing import Literal

from resnas.record import Count, Positive, Record, Share


class Placement(Record):
    """Options of a study's `search` that change nothing about its results."""

    workers: Count | None = None
    """Trials at the same time; null is one per core or GPU, on a Ray cluster as many as its nodes have room for."""
    threads_per_trial: Count = 1
    """CPU threads of one trial."""
    executor: Literal["local", "ray"] = "local"
    """Where trials run: on this machine, or on the nodes of a Ray cluster (`pip install 'resnas[ray]'`)."""
    ray_address: str | None = None
    """Ray cluster, as host:port, or auto for the one on this machine; null is RAY_ADDRESS, or else a new local one."""
    cpus_per_trial: Positive | None = None
    """CPUs of its Ray node that one trial takes; null is `threads_per_trial`."""
    gpus_per_trial: Share = 0.0
    """Share of one GPU of its Ray node that one trial takes: with 0.5 two trials share a GPU, with 0 none is used."""
