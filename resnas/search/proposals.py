"""Which architecture comes next: Optuna's samplers and pruners, the baseline, the grid, replicates; only feasible ones.

Samplers are made anew for every proposal, seeded by the study's seed and the trial's number: what is proposed depends
on the finished trials only, so that a study that was stopped and resumed draws nothing twice.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from resnas.architecture import Architecture
from resnas.errors import InputError, ResnasError
from resnas.results import Recorded
from resnas.search.opening import set_attributes
from resnas.space.space import RESIDUAL
from resnas.study import Study, derive_seed

Assignment = dict[str, Any]
INFEASIBLE_IN_A_ROW = 1000
"""So many proposals without a feasible one end the search."""


def sampler(study: Study, number: int, counted: int) -> tuple[str, BaseSampler]:
    """Return name and sampler for trial `number`, when `counted` trials have been started before it."""
    seed = derive_seed(study.search.seed, "sampler", number)
    kind = study.search.sampler
    if kind == "grid" or (kind == "tpe" and counted < study.search.random_share * study.search.n_trials):
        kind = "random"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "tpe":
            return kind, TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        if kind == "nsga2":
            # its own first generation is random, and must be a small part of the study
            population = max(4, study.search.n_trials // 8)
            return "random" if counted < population else kind, NSGAIISampler(population_size=population, seed=seed)
        return kind, RandomSampler(seed=seed)


def pruner(study: Study) -> BasePruner:
    """Return the pruner; none acts before the first validation."""
    first_validation = max(1, study.budget.steps // study.budget.validations)
    if study.search.pruner == "asha":
        return SuccessiveHalvingPruner(min_resource=first_validation, reduction_factor=3)
    if study.search.pruner == "median":
        return MedianPruner(n_startup_trials=5, n_warmup_steps=first_validation)
    return NopPruner()


def enqueue_start(study: Study, optuna_study: optuna.Study) -> bool:
    """Queue the baseline, and the grid where one is asked for, as far as they are not in the study yet.

    Returns False where the space has no feasible baseline.
    """
    trials = optuna_study.get_trials(deepcopy=False)
    known = {key for trial in trials if (key := _key_of(study, trial))}
    baseline = _baseline(study)
    if baseline is not None and not trials:
        optuna_study.enqueue_trial(baseline, user_attrs={"resnas.origin": "baseline"})
        known |= {study.search_space.build(baseline).key}
    if study.search.sampler == "grid":
        for assignment in study.search_space.assignments():
            if len(known) >= study.search.n_trials:
                break
            if _feasible(study, assignment) and (key := study.search_space.build(assignment).key) not in known:
                known.add(key)
                optuna_study.enqueue_trial(assignment, user_attrs={"resnas.origin": "grid"})
    return baseline is not None


def _baseline(study: Study) -> Assignment | None:
    """Return the baseline of the space, or where that is infeasible, a feasible one drawn at random."""
    first = study.search_space.baseline()
    if first is None or _feasible(study, first):
        return first
    random = Random(study.search.seed)
    drawn = (study.search_space.draw(random) for _ in range(INFEASIBLE_IN_A_ROW))
    fixed = (assignment for assignment in drawn if assignment.get(RESIDUAL, "fixed") == "fixed")
    return next((assignment for assignment in fixed if _feasible(study, assignment)), None)


def _feasible(study: Study, assignment: Assignment) -> bool:
    try:
        architecture = study.search_space.build(assignment)
    except InputError:  # by the validator of a user's topology
        return False
    return study.search_space.infeasible(architecture, study.task.shape()) is None


def _key_of(study: Study, trial: FrozenTrial) -> str:
    """Return the key of a trial's architecture, also where it is only queued; empty where it never had one."""
    queued = trial.system_attrs.get("fixed_params")
    return study.search_space.build(queued).key if queued else Recorded.of(trial).key


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


def enqueue_replicates(study: Study, optuna_study: optuna.Study, trial: optuna.Trial) -> None:
    """Queue the further seeds of an architecture that is met for the first time."""
    for _ in range(study.search.replicates - 1):
        optuna_study.enqueue_trial(trial.params, user_attrs={"resnas.origin": "replicate"})
