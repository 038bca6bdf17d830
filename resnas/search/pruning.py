"""Which trials are stopped early: Optuna's pruners, which compare architectures, each by the mean of its replicates."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from statistics import fmean
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState

from resnas.results import Recorded
from resnas.study import Study

COMPARED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
"""An interrupted trial runs again, and then says the same once more."""
RUNG = "completed_rung_"
"""Under this name, with its number, Optuna's successive halving keeps the value that a trial had at a rung."""


def make_pruner(study: Study) -> BasePruner:
    """Return the pruner; none acts before the first validation."""
    first_validation = max(1, study.budget.steps // study.budget.validations)
    if study.search.pruner == "asha":
        return SuccessiveHalvingPruner(min_resource=first_validation, reduction_factor=3)
    if study.search.pruner == "median":
        return MedianPruner(n_startup_trials=5, n_warmup_steps=first_validation)
    return NopPruner()


def should_prune(pruner: BasePruner, optuna_study: optuna.Study, number: int) -> bool:
    """Return whether a running trial that has just reported should stop."""
    view = ByArchitecture(optuna_study.study_name, optuna_study._storage)
    trials = optuna_study.get_trials(deepcopy=False)
    own = next(trial for trial in trials if trial.number == number)
    key = Recorded.of(own).key
    replicates = [trial for trial in trials if trial.state in COMPARED and Recorded.of(trial).key == key]
    return pruner.prune(view, _averaged(own, replicates))


class ByArchitecture(optuna.Study):
    """An Optuna study as its pruner sees it: one trial per architecture."""

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        replicates: defaultdict[str, list[FrozenTrial]] = defaultdict(list)
        for trial in super()._get_trials(deepcopy, None, use_cache):
            if trial.state in COMPARED and trial.intermediate_values:
                replicates[Recorded.of(trial).key].append(trial)
        shown = [_averaged(_most_finished(trials), trials) for trials in replicates.values()]
        return [trial for trial in shown if states is None or trial.state in states]


def _most_finished(trials: Sequence[FrozenTrial]) -> FrozenTrial:
    return min(trials, key=lambda trial: COMPARED.index(trial.state))


def _averaged(trial: FrozenTrial, replicates: Sequence[FrozenTrial]) -> FrozenTrial:
    """Return a trial whose values, at its own steps and rungs, are the means over the replicates that got there."""
    shown = copy.copy(trial)
    shown.intermediate_values = _means(trial.intermediate_values, (one.intermediate_values for one in replicates))
    rungs = {name: value for name, value in trial.system_attrs.items() if name.startswith(RUNG)}
    shown.system_attrs = trial.system_attrs | _means(rungs, (one.system_attrs for one in replicates))
    return shown


def _means(own: dict[Any, float], all_values: Iterable[dict[Any, Any]]) -> dict[Any, float]:
    values = list(all_values)
    return {name: fmean(one[name] for one in values if name in one) for name in own}
