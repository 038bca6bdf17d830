"""The learning rate of each arm, chosen again by val_loss on a seed of its own; and the runs that this and the
comparison need.

Seeds derive from the study's seed and "confirm", so no trial of the search has had them; both arms of a pair get the
same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from resnas.architecture import Architecture
from resnas.confirm.change import with_option
from resnas.runs import Run, Runner
from resnas.study import Study, derive_seed
from resnas.trial import TrialResult, TrialSpec

LEARNING_RATE = "training.learning_rate"
MOST_EXTENSIONS = 2
"""How often the grid is extended where the best rate is at its edge."""
TUNING = "tuning"


@dataclass(frozen=True)
class Tuned:
    """An architecture with the learning rate that was chosen for it."""

    architecture: Architecture
    runs: tuple[Run, ...] = ()
    """Those that it was chosen by."""
    remark: str = ""

    @property
    def rate(self) -> float:
        """Peak learning rate."""
        return self.architecture.training.learning_rate


@dataclass
class Grid:
    """The rates of one architecture, as factors of its own, and what they came to."""

    architecture: Architecture
    factors: list[float]
    extensions: int = 0

    def runs(self, study: Study) -> list[Run]:
        """Return one run per rate."""
        return [make_run(study, self._at(factor), TUNING) for factor in self.factors]

    def _at(self, factor: float) -> Architecture:
        return with_option(self.architecture, LEARNING_RATE, self.architecture.training.learning_rate * factor)

    def extend(self, losses: Sequence[float]) -> bool:
        """Add one factor beyond the edge that the best rate lies at; False where it lies inside, or twice was enough.

        Where no rate trains at all, a lower one may.
        """
        best = self._best(losses)
        if self.extensions == MOST_EXTENSIONS or 0 < best < len(self.factors) - 1:
            return False
        first, second, *_ = self.factors
        *_, last_but_one, last = self.factors
        if best == 0:
            self.factors.insert(0, first * first / second)
        else:
            self.factors.append(last * last / last_but_one)
        self.extensions += 1
        return True

    def chosen(self, study: Study, losses: Sequence[float]) -> Tuned:
        """Return the architecture with its best rate."""
        best = self._best(losses)
        remark = f"grid of learning rates extended {('once', 'twice')[self.extensions - 1]}" if self.extensions else ""
        if best in (0, len(self.factors) - 1):
            remark += ", the best one still at its edge"
        if not any(map(math.isfinite, losses)):
            remark = "no learning rate of the grid trains it"
        return Tuned(self._at(self.factors[best]), tuple(self.runs(study)), remark)

    @staticmethod
    def _best(losses: Sequence[float]) -> int:
        return min(range(len(losses)), key=lambda position: losses[position])


def tune(study: Study, architectures: Sequence[Architecture], factors: Sequence[float], runner: Runner) -> list[Tuned]:
    """Return the architectures with the rates that give the lowest val_loss.

    Args:
        study: whose budget and data.
        architectures: each with the rate that the factors multiply.
        factors: different, above 0; a single one is taken without a run.
        runner: of the runs.
    """
    grids = [Grid(one, sorted(factors)) for one in architectures]
    if len(factors) == 1:
        return [Tuned(grid._at(factors[0])) for grid in grids]
    open_grids = list(grids)
    losses: dict[int, list[float]] = {}
    while open_grids:
        every = [grid.runs(study) for grid in open_grids]
        results = iter(runner.run([run for runs in every for run in runs], "learning rates"))
        extended = []
        for grid, runs in zip(open_grids, every, strict=True):
            losses[id(grid)] = [_loss(next(results)) for _ in runs]
            if grid.extend(losses[id(grid)]):
                extended.append(grid)
        runner.expected += len(extended)
        open_grids = extended
    return [grid.chosen(study, losses[id(grid)]) for grid in grids]


def _loss(result: TrialResult) -> float:
    """Return the loss that a rate is chosen by; infinity where the run failed."""
    loss = result.metrics.get("val_loss", math.inf)
    return loss if result.state == "complete" and math.isfinite(loss) else math.inf


def make_run(study: Study, architecture: Architecture, index: int | str, test: bool = False) -> Run:
    """Return the run of an architecture with the seeds of an index (0, 1, … of a pair, or `TUNING`), which do not
    depend on the architecture."""
    seed = study.search.seed
    spec = TrialSpec(
        architecture=architecture.model_dump(mode="json"),
        task={study.task_name: study.task.model_dump(mode="json")},
        budget=study.budget.model_dump(mode="json"),
        seed=derive_seed(seed, "confirm", "weights", index),
        data_seed=derive_seed(seed, "confirm", "data", index),
        folder="",
        threads=study.search.threads_per_trial,
        test=test,
    )
    what = TUNING if index == TUNING else f"seed {index}"
    return Run(spec, f"{architecture.label}, learning rate {architecture.training.learning_rate:.3g}, {what}")
