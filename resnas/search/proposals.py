"""Which architecture comes next: the baseline, the grid, further replicates, what was interrupted, then a sampler's
draws; never an infeasible architecture, and none that failed or was pruned before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from resnas.architecture import Architecture
from resnas.errors import InputError, ResnasError
from resnas.results import Recorded
from resnas.search.ledger import Ledger
from resnas.search.opening import set_attributes
from resnas.search.samplers import ToldStudy, make_sampler
from resnas.space.space import RESIDUAL
from resnas.study import Study

Assignment = dict[str, Any]
REFUSED_IN_A_ROW = 1000
"""So many proposals without one that can be trained end the search."""
DRAWS_BEFORE_RANDOM = 20
"""After so many draws in vain a sampler is stuck at what it knows, and the next draws are random."""
LISTED_ARCHITECTURES = 2_000
"""Spaces of at most so many architectures are listed, to see whether one is left."""


@dataclass(frozen=True)
class Proposal:
    """A trial of the Optuna study with what is to be trained."""

    trial: optuna.Trial
    architecture: Architecture
    replicate: int
    origin: str
    attempt: int = 1
    repeats: int | None = None
    """Number of the trial that this one is once more."""


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
    drawn = (study.search_space.draw(random) for _ in range(REFUSED_IN_A_ROW))
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
    if trial.state != TrialState.WAITING:
        return Recorded.of(trial).key
    return study.search_space.build(trial.system_attrs.get("fixed_params", {})).key


def propose(study: Study, optuna_study: optuna.Study, ledger: Ledger) -> Proposal | None:
    """Return the next trial; None where the grid or the space is used up. `ledger` must be up to date, and stays so.

    Raises:
        ResnasError: no architecture was found that can be trained.
    """
    told = ToldStudy(optuna_study.study_name, optuna_study._storage)
    reason = ""
    for refused in range(REFUSED_IN_A_ROW):
        if study.search.sampler == "grid" and not ledger.waiting:
            return None
        started = ledger.counted + len(ledger.running)
        name, told.sampler = make_sampler(study, ledger.next_draw, started, refused >= DRAWS_BEFORE_RANDOM)
        trial = told.ask()
        ending, reason, architecture = _judge(study, trial, ledger)
        if architecture is not None:
            queued = Recorded.of(trial)  # what the queue says of it; defaults where it was drawn
            return Proposal(
                trial=trial,
                architecture=architecture,
                replicate=_replicate(trial, ledger.taken(architecture.key)),
                origin=queued.origin or name,
                attempt=queued.attempt,
                repeats=trial.user_attrs.get("resnas.repeats"),
            )
        set_attributes(optuna_study, trial, ending=ending, reason=reason)
        optuna_study.tell(trial.number, state=TrialState.FAIL)
        ledger.update(optuna_study.get_trials(deepcopy=False))
        if refused and refused % DRAWS_BEFORE_RANDOM == 0 and _is_used_up(study, ledger):
            return None
    raise ResnasError(f"{REFUSED_IN_A_ROW} proposals in a row cannot be trained; the last: {reason}")


def _judge(study: Study, trial: optuna.Trial, ledger: Ledger) -> tuple[str, str, Architecture | None]:
    """Return (ending, reason, None) of a proposal that is not trained, and ("", "", its architecture) of others."""
    try:
        architecture = study.search_space.sample(trial)
        reason = study.search_space.infeasible(architecture, study.task.shape())
    except InputError as refused:  # by the validator of a user's topology
        reason = str(refused)
    if reason is not None:
        return "infeasible", reason, None
    key, queued = architecture.key, "resnas.origin" in trial.user_attrs
    if key in ledger.failed:
        return "skipped", f"failed before: {ledger.failed[key]}", None
    if key in ledger.pruned and "resnas.repeats" not in trial.user_attrs:
        return "skipped", "its architecture was pruned before", None
    if study.search.duplicates == "redraw" and not queued and ledger.taken(key):
        return "skipped", "its architecture has its replicates already", None
    return "", "", architecture


def _is_used_up(study: Study, ledger: Ledger) -> bool:
    """Whether a small discrete space has no architecture left that may be trained (again, as a further replicate)."""
    size = study.search_space.count()
    if size is None or size > LISTED_ARCHITECTURES:
        return False
    shape, once = study.task.shape(), study.search.duplicates == "redraw"
    gone = ledger.failed.keys() | ledger.pruned
    return all(
        one.key in gone or study.search_space.infeasible(one, shape) or (once and ledger.taken(one.key))
        for one in study.search_space.enumerate()
    )


def _replicate(trial: optuna.Trial, taken: set[int]) -> int:
    """Return the replicate that the queue asks for if it is free, else the first free one."""
    asked = trial.user_attrs.get("resnas.replicate")
    return asked if asked is not None and asked not in taken else next(one for one in count() if one not in taken)


def enqueue_replicates(study: Study, optuna_study: optuna.Study, ledger: Ledger, key: str, replicate: int = 0) -> None:
    """Queue the replicates of an architecture that are neither trained nor queued, but for `replicate` itself."""
    wanted = set(range(study.search.replicates)) - {replicate} - ledger.taken(key)
    if not wanted:  # before looking through a queue that may be long
        return
    queued = {Recorded.of(trial).replicate for trial in ledger.waiting if _key_of(study, trial) == key}
    for missing in sorted(wanted - queued):
        attributes = {"resnas.origin": "replicate", "resnas.replicate": missing}
        optuna_study.enqueue_trial(ledger.parameters[key], user_attrs=attributes)


def requeue(optuna_study: optuna.Study, trial: FrozenTrial, attempt: int) -> None:
    """Queue the architecture and replicate of a trial once more; a draw that was never written down is drawn again."""
    recorded = Recorded.of(trial)
    queued = trial.system_attrs.get("fixed_params", trial.params if recorded.key else None)
    if queued is None:
        return
    attributes: dict[str, Any] = {
        "resnas.origin": recorded.origin,
        "resnas.attempt": attempt,
        "resnas.repeats": trial.number,
    }
    if "resnas.replicate" in trial.user_attrs:
        attributes["resnas.replicate"] = recorded.replicate
    optuna_study.enqueue_trial(queued, user_attrs=attributes)
