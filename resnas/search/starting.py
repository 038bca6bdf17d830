"""Deciding on the next trial and writing it down as this coordinator's, in one turn among all coordinators."""

from __future__ import annotations

import optuna
from optuna.exceptions import UpdateFinishedTrialError

from resnas.search.claim import Claim
from resnas.search.disk import KeptCheckpoints
from resnas.search.ledger import Ledger
from resnas.search.opening import trial_folder
from resnas.search.proposals import Proposal, enqueue_replicates, propose
from resnas.search.recording import NOT_NEEDED, interrupt, record_start
from resnas.study import Study, derive_seed
from resnas.trial import TrialSpec


class UsedUp(Exception):
    """The grid, or the space, has no further architecture."""


def next_trial(
    study: Study, optuna_study: optuna.Study, claim: Claim, ledger: Ledger, checkpoints: KeptCheckpoints
) -> tuple[Proposal, TrialSpec] | None:
    """Return the next trial, recorded as running; None where the study has its trials. `ledger` is kept up to date.

    Raises:
        UsedUp: there is none though the study has room for it.
        ResnasError: no architecture was found that can be trained.
    """
    while True:
        with claim.exclusive():
            ledger.update(optuna_study.get_trials(deepcopy=False))
            if ledger.left <= 0:
                return None
            proposal = propose(study, optuna_study, ledger)
            if proposal is None:
                raise UsedUp
            spec = _spec(study, proposal, checkpoints)
            try:
                record_start(study, optuna_study, proposal, spec, claim.owner)
            except UpdateFinishedTrialError:  # another coordinator took it for dead, and has queued it again
                continue
            ledger.update(optuna_study.get_trials(deepcopy=False))
            if ledger.left < 0 and not claim.has_turn():  # another one had its turn at the same time
                interrupt(optuna_study, proposal.trial, NOT_NEEDED)
                continue
            enqueue_replicates(study, optuna_study, ledger, proposal.architecture.key, proposal.replicate)
            return proposal, spec


def _spec(study: Study, proposal: Proposal, checkpoints: KeptCheckpoints) -> TrialSpec:
    """Return what the trial is told; batches depend on the replicate alone, so that architectures are paired."""
    seed, architecture, replicate = study.search.seed, proposal.architecture, proposal.replicate
    if proposal.repeats is not None:  # perhaps of another coordinator
        checkpoints.interrupted(proposal.repeats, architecture.key, replicate)
    return TrialSpec(
        architecture=architecture.model_dump(mode="json"),
        task={study.task_name: study.task.model_dump(mode="json")},
        budget=study.budget.model_dump(mode="json"),
        seed=derive_seed(seed, "weights", architecture.key, replicate),
        data_seed=derive_seed(seed, "data", replicate),
        folder=str(trial_folder(study, proposal.trial.number)),
        threads=study.search.threads_per_trial,
        checkpoint=checkpoints.to_go_on(architecture.key, replicate),
    )
