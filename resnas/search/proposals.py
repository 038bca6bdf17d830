"""Which architecture comes next: Optuna's samplers and pruners, the baseline, the grid, replicates; only feasible ones.

Samplers are made anew for every proposal, seeded by the study's seed and the trial's number: what is proposed depends
on the finished trials only, so that a study that was stopped and resumed draws nothing twice.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from resnas.architecture import Architecture
from resnas.errors import InputError, ResnasError
from resnas.search.storage import set_attributes
from resnas.study import Study, derive_seed

INFEASIBLE_IN_A_ROW = 1000
"""So many proposals without a feasible one end the search."""


def sampler(study: Study, number: int, counted: int) -> tuple[str, BaseSampler]:
    """Return name and sampler for trial `number`, when `counted` trials have been started before it."""
    seed = derive_seed(study.search.seed, "sampler", number)
    kind = study.search.sampler
    if kind == "grid" or counted < study.search.random_share * study.search.n_trials:
        kind = "random"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "tpe":
            return kind, TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        if kind == "nsga2":
            return kind, NSGAIISampler(seed=seed)
        return kind, RandomSampler(seed=seed)


def pruner(study: Study) -> BasePruner:
    """Return the pruner; none acts before the first validation."""
    first_validation = max(1, study.budget.steps // study.budget.validations)
    if study.search.pruner == "asha":
        return SuccessiveHalvingPruner(min_resource=first_validation, reduction_factor=3)
    if study.search.pruner == "median":
        return MedianPruner(n_startup_trials=5, n_warmup_steps=first_validation)
    return NopPruner()


def enqueue_start(study: Study, optuna_study: optuna.Study) -> None:
    """Queue what a new study begins with: the baseline, then the grid where one is asked for."""
    if optuna_study.get_trials(deepcopy=False):
        return
    space, shape = study.search_space, study.task.shape()
    baseline = space.baseline()
    first = [] if baseline is None else [(baseline, "baseline")]
    grid = ((assignment, "grid") for assignment in (space.assignments() if study.search.sampler == "grid" else ()))
    seen: set[str] = set()
    queued = 0
    for assignment, origin in itertools.chain(first, grid):
        architecture = space.build(assignment)
        if queued >= study.search.n_trials:
            break
        if architecture.key in seen or space.infeasible(architecture, shape):
            continue
        seen.add(architecture.key)
        optuna_study.enqueue_trial(assignment, user_attrs={"resnas.origin": origin})
        queued += 1


def propose(study: Study, optuna_study: optuna.Study, counted: int) -> tuple[optuna.Trial, Architecture, str] | None:
    """Return the next trial with its architecture and origin; None where a grid is used up.

    Raises:
        ResnasError: no feasible architecture was found.
    """
    shape = study.task.shape()
    reason = ""
    for _ in range(INFEASIBLE_IN_A_ROW):
        number = len(optuna_study.get_trials(deepcopy=False))
        if study.search.sampler == "grid" and not optuna_study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            return None
        name, optuna_study.sampler = sampler(study, number, counted)
        trial = optuna_study.ask()
        try:
            architecture = study.search_space.sample(trial)
            infeasible = study.search_space.infeasible(architecture, shape)
        except InputError as refused:  # by the validator of a user's topology
            infeasible = str(refused)
        if infeasible is None:
            return trial, architecture, trial.user_attrs.get("resnas.origin", name)
        reason = infeasible
        set_attributes(optuna_study, trial, ending="infeasible", reason=reason)
        optuna_study.tell(trial, state=TrialState.FAIL)
    raise ResnasError(f"{INFEASIBLE_IN_A_ROW} proposals in a row were infeasible; the last: {reason}")


def enqueue_replicates(
    study: Study, optuna_study: optuna.Study, trial: optuna.Trial, seen: Sequence[str], key: str
) -> None:
    """Queue the further seeds of an architecture when it is first met."""
    if key in seen:
        return
    for _ in range(study.search.replicates - 1):
        optuna_study.enqueue_trial(trial.params, user_attrs={"resnas.origin": "replicate"})
