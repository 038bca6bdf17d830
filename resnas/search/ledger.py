"""What a study has come to so far, read from its trials: counts by ending, replicates, failed architectures, the best.

The Optuna study is the truth; the ledger only spares reading finished trials again, which never change.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from resnas.comparison import is_beyond, sign
from resnas.results import COUNTED, Recorded
from resnas.study import Study

RECENT_TRIALS = 20
"""So many trials say how long the next one will take."""


@dataclass(frozen=True)
class Best:
    """The best trial so far by the first objective, among those that keep to the study's limits."""

    metric: str
    value: float
    number: int
    label: str
    at: datetime | None
    """When it ended."""


class Ledger:
    """The trials of one study, as far as `update` has seen them."""

    def __init__(self, study: Study) -> None:
        self._objective, self._direction = next(iter(study.directions.items()))
        self._asked = study.search.n_trials
        self._seen: set[int] = set()
        self.endings: Counter[str] = Counter()
        self.replicates: defaultdict[str, set[int]] = defaultdict(set)
        """The replicates of each architecture (by key) that have ended."""
        self.failed: dict[str, str] = {}
        """Why an architecture (by key) failed."""
        self.pruned: set[str] = set()
        """Architectures (by key) of which a replicate was pruned."""
        self.durations_s: deque[float] = deque(maxlen=RECENT_TRIALS)
        self.bests: list[Best] = []
        """Each trial that was better than all before it."""
        self.drawn = 0
        """Trials that a sampler has drawn, rather than taken from the queue."""
        self.running: list[FrozenTrial] = []
        self.waiting: list[FrozenTrial] = []
        self.parameters: dict[str, dict[str, Any]] = {}
        """Optuna's parameters of each architecture (by key) that was started."""
        self.baseline_key = ""
        """Of the baseline, once it was started."""

    def update(self, trials: Sequence[FrozenTrial]) -> None:
        """Take up what has changed; `trials` are all trials of the study."""
        self.running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        self.waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
        for trial in self.running:
            self._note(trial, Recorded.of(trial))
        for trial in trials:
            if trial.state.is_finished() and trial.number not in self._seen:
                self._seen.add(trial.number)
                self._take(trial)

    @property
    def counted(self) -> int:
        """Trials that have used up one of the study's trials."""
        return sum(self.endings[ending] for ending in COUNTED)

    @property
    def left(self) -> int:
        """How many trials may still be started, by any coordinator."""
        return self._asked - self.counted - len(self.running)

    @property
    def best(self) -> Best | None:
        """The best trial so far."""
        return self.bests[-1] if self.bests else None

    @property
    def next_draw(self) -> int:
        """How many draws came before the next one; those under way included, so that none is made twice."""
        return self.drawn + sum(_is_drawn(trial) for trial in self.running)

    def completed_keys(self) -> list[str]:
        """Return the architectures that were trained and neither failed nor were pruned, in the order of the study."""
        return [key for key in self.replicates if key not in self.failed and key not in self.pruned]

    def taken(self, key: str) -> set[int]:
        """Return the replicates of an architecture that have ended or run."""
        running = (Recorded.of(trial) for trial in self.running)
        return self.replicates.get(key, set()) | {one.replicate for one in running if one.key == key and one.owner}

    def expected_s(self) -> float | None:
        """Return how long a trial takes, from those that ended of late; None before the first."""
        return median(self.durations_s) if self.durations_s else None

    def _take(self, trial: FrozenTrial) -> None:
        recorded = Recorded.of(trial)
        self.drawn += _is_drawn(trial)
        self.endings[recorded.ending] += 1
        self._note(trial, recorded)
        if recorded.ending not in COUNTED:
            return
        self.replicates[recorded.key].add(recorded.replicate)
        if trial.duration is not None:
            self.durations_s.append(trial.duration.total_seconds())
        if recorded.ending == "failed":
            self.failed[recorded.key] = recorded.reason
        elif recorded.ending == "pruned":
            self.pruned.add(recorded.key)
        else:
            self._compare(trial, recorded.label)

    def _note(self, trial: FrozenTrial, recorded: Recorded) -> None:
        """Take up what a trial says of its architecture, whether it has ended or not."""
        if recorded.key:
            self.parameters.setdefault(recorded.key, trial.params)
        if recorded.origin == "baseline":
            self.baseline_key = recorded.key or self.baseline_key

    def _compare(self, trial: FrozenTrial, label: str) -> None:
        value = trial.values[0] if trial.values else math.nan
        if not math.isfinite(value) or is_beyond(trial.constraints):
            return
        best = self.best
        if best is None or sign(self._direction) * value < sign(self._direction) * best.value:
            self.bests.append(Best(self._objective, value, trial.number, label, trial.datetime_complete))


def _is_drawn(trial: FrozenTrial) -> bool:
    """Whether a sampler drew it. A draw that was lost before it was written down is drawn again."""
    lost = Recorded.of(trial).ending in ("running", "interrupted") and not Recorded.of(trial).key
    return "fixed_params" not in trial.system_attrs and not lost
