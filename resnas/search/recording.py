"""Writing down how a trial began and ended, so that whatever happens between two writes, nothing is lost or counted
twice: first `result.json`, then the attributes, last the state that makes it count.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from resnas.files import environment, study_as_used, write_json, write_yaml
from resnas.results import Recorded
from resnas.search.opening import EXTENSIONS, set_attributes, trial_folder
from resnas.search.proposals import Proposal, requeue
from resnas.study import Study
from resnas.trial import TRANSIENT, TrialResult, TrialSpec

STOPPED = "interrupted: the search was stopped"
DIED = "interrupted: its coordinator died"
NOT_NEEDED = "interrupted: the study has its trials"
OUT_OF_TIME = "interrupted: the time of the search was up"
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}


def record_study(study: Study, optuna_study: optuna.Study, facts: dict[str, Any], slots: int) -> None:
    """Write down what the figures of the study depend on: data, versions, machine, the files as used."""
    folder, extensions = study.results_folder, optuna_study.user_attrs.get(EXTENSIONS)
    facts = facts | environment(study, slots) | ({"extensions": extensions} if extensions else {})
    write_json(folder / "environment.json", facts)
    write_yaml(folder / "study.yaml", study_as_used(study))
    write_yaml(folder / "space.yaml", study.search_space.to_dict())


def record_start(study: Study, optuna_study: optuna.Study, proposal: Proposal, spec: TrialSpec, owner: str) -> None:
    """Write down what is about to be trained, by which coordinator."""
    # a result that another study has left in this folder must not be taken for this trial's
    (trial_folder(study, proposal.trial.number) / "result.json").unlink(missing_ok=True)
    set_attributes(
        optuna_study,
        proposal.trial,
        architecture=spec.architecture,
        key=proposal.architecture.key,
        label=proposal.architecture.label,
        replicate=proposal.replicate,
        seed=spec.seed,
        data_seed=spec.data_seed,
        origin=proposal.origin,
        attempt=proposal.attempt,
        owner=owner,
    )


def checked(study: Study, result: TrialResult, data_sha256: str) -> TrialResult:
    """Return the result, or a failure where it cannot be used: other data, or a metric that is asked for missing."""
    if result.state != "complete":
        return result
    needed = [*study.objectives, *study.limits]
    missing = [name for name in needed if not math.isfinite(result.metrics.get(name, math.nan))]
    if missing:
        return TrialResult.failure("invalid result", f"no finite value of {', '.join(missing)}", result.data_sha256)
    if result.data_sha256 != data_sha256:
        hashes = f"sha256 {result.data_sha256[:12]}…, that of the study {data_sha256[:12]}…"
        return TrialResult.failure("invalid result", f"trained on other data ({hashes})", result.data_sha256)
    return result


def record_ending(study: Study, optuna_study: optuna.Study, trial: optuna.Trial, result: TrialResult) -> str:
    """Write down how a trial ended, and queue it again where that was not its own doing; return the ending."""
    recorded = Recorded.of(optuna_study._storage.get_trial(trial._trial_id))  # an optuna.Trial remembers only its own
    ending: str = result.state
    if result.cause in TRANSIENT and recorded.attempt <= study.search.retries:
        ending = "retried"
    elif result.cause == "disk full":
        ending = "interrupted"
    kept = result.to_dict() | {"number": trial.number, "key": recorded.key, "seed": recorded.seed}
    write_json(trial_folder(study, trial.number) / "result.json", kept)
    for name, value in result.metrics.items():
        trial.set_user_attr(name, value)
    if result.state == "complete":
        for name, excess in study.excesses(result.metrics).items():
            if name not in trial.constraints:  # it was written before its coordinator died
                trial.set_constraint(name, excess)
    attributes: dict[str, Any] = {"reason": result.reason, "data_sha256": result.data_sha256}
    attributes |= {"cause": result.cause} if result.cause else {}
    set_attributes(optuna_study, trial, ending=ending, **attributes)
    if ending in ("retried", "interrupted"):
        _again(optuna_study, trial.number, recorded.attempt + (ending == "retried"))
    values = [result.metrics[name] for name in study.objectives] if result.state == "complete" else None
    optuna_study.tell(trial.number, values, STATES.get(result.state, TrialState.FAIL))
    return ending


def end_unfinished(
    study: Study, optuna_study: optuna.Study, reason: str, is_gone: Callable[[str], bool] = lambda owner: True
) -> list[FrozenTrial]:
    """End the trials that no process runs any more; return those that are queued again.

    A result that was there already is recorded; the others are queued again.

    Args:
        study: what is searched.
        optuna_study: its record.
        reason: why they have not ended themselves.
        is_gone: whether the coordinator of a trial, by its name, is gone.
    """
    running = optuna_study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    again = []
    for trial in [trial for trial in running if is_gone(Recorded.of(trial).owner)]:
        result = _kept_result(study, trial)
        if result is not None:
            record_ending(study, optuna_study, optuna.Trial(optuna_study, trial._trial_id), result)
            continue
        interrupt(optuna_study, trial, reason)
        again.append(trial)
    return again


def interrupt(optuna_study: optuna.Study, trial: FrozenTrial | optuna.Trial, reason: str) -> None:
    """End a trial that no process runs, and queue it again."""
    set_attributes(optuna_study, trial, ending="interrupted", reason=reason)
    _again(optuna_study, trial.number, Recorded.of(trial).attempt)
    optuna_study.tell(trial.number, state=TrialState.FAIL)


def _again(optuna_study: optuna.Study, number: int, attempt: int) -> None:
    """Queue a trial once more, unless that was done before its coordinator died."""
    trials = optuna_study.get_trials(deepcopy=False)
    if any(trial.user_attrs.get("resnas.repeats") == number for trial in trials):
        return
    trial = next(trial for trial in trials if trial.number == number)
    requeue(optuna_study, trial, attempt)


def _kept_result(study: Study, trial: FrozenTrial) -> TrialResult | None:
    """Return the result that was written before the coordinator died."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((trial_folder(study, trial.number) / "result.json").read_text(encoding="utf-8"))
        recorded = Recorded.of(trial)
        if recorded.key and (kept.pop("number"), kept.pop("key"), kept.pop("seed")) == (
            trial.number,
            recorded.key,
            recorded.seed,
        ):
            return TrialResult(**kept)
    return None
