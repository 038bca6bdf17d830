"""Optuna's own importances of the same trials, to stand beside ours and be named as such."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from resnas.comparison import comparable
from resnas.results import table
from resnas.study import Study, derive_seed

FEWEST_TRIALS = 4
"""Fewer give no importances."""
WHY_THEY_DIFFER = (
    "Optuna's importances differ: they divide 100 % between the parameters even where all is noise, and have no "
    "interval; PED-ANOVA (what the dashboard draws) asks what the best tenth of the trials have in common, fANOVA what "
    "its own forest varies with on trials that it was trained on, among parameters that all trials have"
)


@dataclass(frozen=True)
class OptunaImportance:
    """Importances of one parameter of the space for one metric; None where Optuna gives none."""

    target: str
    parameter: str
    ped_anova: float | None
    fanova: float | None


def importances_beside(study: Study, trials: Sequence[FrozenTrial], target: str) -> list[OptunaImportance]:
    """Return what Optuna says of a metric, of those trials of the study that a ranking of it is made from."""
    numbers = {row["number"] for row in comparable(table(trials))}
    ranked = [trial for trial in trials if trial.number in numbers]
    return optuna_importances(ranked, target, derive_seed(study.search.seed, "fANOVA", target))


def optuna_importances(trials: Sequence[FrozenTrial], target: str, seed: int) -> list[OptunaImportance]:
    """Return what Optuna says of a metric, the most important by PED-ANOVA first; nothing where there is too little.

    Args:
        trials: the complete trials that are ranked.
        target: a metric.
        seed: of fANOVA's forest.
    """
    study = optuna.create_study()
    for trial in trials:
        value = trial.user_attrs.get(target)
        if trial.state == TrialState.COMPLETE and isinstance(value, int | float) and math.isfinite(value):
            study.add_trial(
                optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, value=float(value))
            )
    if len(study.trials) < FEWEST_TRIALS:
        return []
    ped_anova = _importances(study, PedAnovaImportanceEvaluator())
    fanova = _importances(study, FanovaImportanceEvaluator(seed=seed))
    names = sorted({*ped_anova, *fanova}, key=lambda name: (-ped_anova.get(name, -1.0), name))
    return [OptunaImportance(target, name, ped_anova.get(name), fanova.get(name)) for name in names]


def _importances(study: optuna.Study, evaluator: optuna.importance.BaseImportanceEvaluator) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental classes, and of parameters that not all trials have
        try:
            found = get_param_importances(study, evaluator=evaluator)
        except (RuntimeError, ValueError):  # no variance in the values, or no parameter that all trials have
            return {}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}
