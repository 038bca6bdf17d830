"""Which trials are stopped early: Optuna's pruners, which compare architectures, each by the mean of its replicates."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState

from resnas.results import Recorded
from resnas.study import Study

COMPARED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
"""An interrupted trial runs again, and then says the same once more."""
REDUCTION_FACTOR = 3
"""The best third of the architectures at a rung goes on."""
RUNG = "completed_rung_"
"""Under this name, with its number, Optuna's successive halving keeps the value that a trial had at a rung."""


def make_pruner(study: Study) -> BasePruner:
    """Return the pruner; none acts before the first validation."""
    if study.search.pruner == "asha":
        return SuccessiveHalvingPruner(min_resource=_first_validation(study), reduction_factor=REDUCTION_FACTOR)
    if study.search.pruner == "median":
        return MedianPruner(n_startup_trials=5, n_warmup_steps=_first_validation(study))
    return NopPruner()


def _first_validation(study: Study) -> int:
    return max(1, study.budget.steps // study.budget.validations)


def should_prune(pruner: BasePruner, study: Study, optuna_study: optuna.Study, number: int) -> bool:
    """Return whether a running trial that has just reported should stop."""
    trials = [trial for trial in optuna_study.get_trials(deepcopy=False) if trial.state in COMPARED]
    own = next(trial for trial in trials if trial.number == number)
    key = Recorded.of(own).key
    view = ByArchitecture(optuna_study.study_name, optuna_study._storage)
    view.without_key, view.first_rung_step = key, _first_validation(study)
    replicates = [trial for trial in trials if Recorded.of(trial).key == key]
    shown = copy.copy(own)
    shown.intermediate_values = _means(own.intermediate_values, [one.intermediate_values for one in replicates])
    return pruner.prune(view, shown)


class ByArchitecture(optuna.Study):
    """An Optuna study as its pruner sees it: one trial per architecture, but for that which is judged."""

    without_key = ""
    first_rung_step = 1

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        replicates: defaultdict[str, list[FrozenTrial]] = defaultdict(list)
        for trial in super()._get_trials(deepcopy, None, use_cache):
            key = Recorded.of(trial).key
            if trial.state in COMPARED and trial.intermediate_values and key != self.without_key:
                replicates[key].append(trial)
        shown = [self._averaged(trials) for trials in replicates.values()]
        return [trial for trial in shown if states is None or trial.state in states]

    def _averaged(self, replicates: Sequence[FrozenTrial]) -> FrozenTrial:
        """Return the most finished replicate, with the means over the replicates at every step and rung."""
        shown = copy.copy(min(replicates, key=lambda trial: COMPARED.index(trial.state)))
        all_values = [one.intermediate_values for one in replicates]
        shown.intermediate_values = _means({step for values in all_values for step in values}, all_values)
        rungs = [self._rungs(one) for one in replicates]
        shown.system_attrs = shown.system_attrs | _means({name for values in rungs for name in values}, rungs)
        return shown

    def _rungs(self, trial: FrozenTrial) -> dict[str, float]:
        """Return the value of a trial at each rung that it has completed; Optuna keeps that of the mean instead."""
        names = sorted(name for name in trial.system_attrs if name.startswith(RUNG))
        steps = {name: self.first_rung_step * REDUCTION_FACTOR ** int(name.removeprefix(RUNG)) for name in names}
        reached = {name: [step for step in trial.intermediate_values if step >= steps[name]] for name in names}
        return {name: trial.intermediate_values[min(found)] for name, found in reached.items() if found}


def _means(names: Iterable[Any], all_values: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
    return {name: fmean(values[name] for values in all_values if name in values) for name in sorted(names)}
