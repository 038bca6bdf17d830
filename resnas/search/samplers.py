"""The samplers, and what they are shown of a study: failed and infeasible trials count as the worst of all.

Samplers are made anew for every draw, seeded by the study's seed and the number of draws before: what is drawn depends
on the finished trials only, so that a study that was stopped and resumed draws the same as one that was not.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Sequence

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from resnas.results import Recorded
from resnas.study import Study, derive_seed


def make_sampler(study: Study, draw: int, started: int, random: bool = False) -> tuple[str, BaseSampler]:
    """Return name and sampler of a draw.

    Args:
        study: what is searched.
        draw: how many draws came before.
        started: how many trials were started before.
        random: draw at random whatever the study says.
    """
    seed = derive_seed(study.search.seed, "sampler", draw)
    kind = study.search.sampler
    if random or kind == "grid" or (kind == "tpe" and started < study.search.random_share * study.search.n_trials):
        kind = "random"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "tpe":
            return kind, TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        if kind == "nsga2":
            # its own first generation is random, and must be a small part of the study
            population = max(4, study.search.n_trials // 8)
            return "random" if started < population else kind, NSGAIISampler(population_size=population, seed=seed)
        return kind, RandomSampler(seed=seed)


class ToldStudy(optuna.Study):
    """An Optuna study as its samplers see it: Optuna hides failed trials from them, so they would be drawn again.

    Only what is shown differs. What is recorded stays as it is: a failed trial has no value.
    """

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        trials = super()._get_trials(deepcopy, None, use_cache)
        worst = _worst(trials, self.directions)
        shown = [_as_worst(trial, worst) if worst and _is_bad(trial) else trial for trial in trials]
        return [trial for trial in shown if states is None or trial.state in states]

    def _pop_waiting_trial_id(self) -> int | None:
        """Take from the queue what runs again, so that an interruption does not change the order; then the further
        replicates of what was begun; then what is new."""

        def order(trial: FrozenTrial) -> tuple[bool, bool, int]:
            is_new = Recorded.of(trial).origin != "replicate"
            return "resnas.repeats" not in trial.user_attrs, is_new, trial.number

        waiting = self._storage.get_all_trials(self._study_id, deepcopy=False, states=(TrialState.WAITING,))
        for trial in sorted(waiting, key=order):
            if self._storage.set_trial_state_values(trial._trial_id, state=TrialState.RUNNING):
                return trial._trial_id
        return None


def _worst(trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> list[float]:
    """Return the worst value of each objective so far; nothing where no trial is complete."""
    columns = zip(*(trial.values for trial in trials if trial.state == TrialState.COMPLETE), strict=True)
    return [
        max(column) if direction == StudyDirection.MINIMIZE else min(column)
        for column, direction in zip(columns, directions, strict=False)
    ]


def _is_bad(trial: FrozenTrial) -> bool:
    """Whether a trial has no value because of its architecture."""
    if trial.state != TrialState.FAIL or not trial.params:
        return False
    return Recorded.of(trial).ending in ("failed", "infeasible")


def _as_worst(trial: FrozenTrial, values: list[float]) -> FrozenTrial:
    shown = copy.copy(trial)
    shown.state = TrialState.COMPLETE
    shown.values = values
    return shown
