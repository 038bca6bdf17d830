"""How a search stands at one moment, for a live view."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from resnas.search.ledger import Best
from resnas.search.proposals import Proposal


@dataclass
class RunningTrial:
    """A trial that this coordinator trains."""

    proposal: Proposal
    step: int = 0
    started_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Snapshot:
    """How the search stands."""

    total: int
    endings: Counter[str]
    running: list[RunningTrial]
    best: Best | None
    elapsed_s: float
    left_s: float | None
    last: str
