"""Widening the space of a study that has trials: they are copied, with their numbers, into a new Optuna study.

That one knows the wider space, and says what changed. The study as it was stays in the storage under its old name.
Optuna refuses a parameter whose choices have changed, so the old study cannot go on itself.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from resnas.errors import InputError, ResnasError
from resnas.results import Recorded
from resnas.search.claim import Claim
from resnas.search.opening import (
    EXTENSIONS,
    FINGERPRINT,
    existing_study,
    fingerprint_of,
    next_name,
)
from resnas.search.recording import DIED, end_unfinished
from resnas.search.storage import locate, open_storage
from resnas.study import Study, changes

SPACE = ("architecture.", "training.", "constraints.")


def extend(study: Study, claim: Claim) -> list[str]:
    """Let a study go on with a wider space; return what has changed, nothing where it is as it was or is new.

    Raises:
        InputError: something else than the space has changed, or a trained architecture is not in it any more.
        ResnasError: another coordinator still runs the study.
    """
    try:
        old = existing_study(study)
    except InputError:
        return []
    before = old.user_attrs.get(FINGERPRINT)
    if before is None or not (different := changes(before, fingerprint_of(study))):
        return []
    if fixed := [line for line in different if not line.startswith(SPACE)]:
        raise InputError(
            f"--extend: only the space of a study may change, not {'; '.join(fixed)}; --new-study makes a new study"
        )
    with claim.exclusive():
        end_unfinished(study, old, DIED, lambda owner: not (owner and claim.is_alive(owner)))
        trials = old.get_trials()
        if any(trial.state == TrialState.RUNNING for trial in trials):
            raise ResnasError(f"--extend: another search is running the study {study.name!r}; stop it first")
        constants = _constants(before)
        copies = [_widened(study, trial, constants) for trial in trials]
        _write(study, old, copies, different)
    return different


def _write(study: Study, old: optuna.Study, trials: list[FrozenTrial], different: list[str]) -> None:
    """Make the new Optuna study; its fingerprint comes last, and makes it count."""
    storage, name = open_storage(locate(study)), next_name(old._storage, study.name)
    if name in optuna.get_all_study_names(storage):  # begun, and its coordinator died
        optuna.delete_study(study_name=name, storage=storage)
    new = optuna.create_study(study_name=name, storage=storage, directions=old.directions)
    new.add_trials(trials)
    for key, value in old.user_attrs.items():
        if key != FINGERPRINT:
            new.set_user_attr(key, value)
    extension = {"at": datetime.now().isoformat(timespec="seconds"), "trials_before": len(trials), "changes": different}
    new.set_user_attr(EXTENSIONS, [*old.user_attrs.get(EXTENSIONS, []), extension])
    new.set_user_attr(FINGERPRINT, fingerprint_of(study))


def _widened(study: Study, trial: FrozenTrial, constants: Mapping[str, Any]) -> FrozenTrial:
    """Return a trial as one of the wider space; `constants` are the values that did not vary before."""
    new = copy.deepcopy(trial)
    recorded, queued = Recorded.of(trial), trial.system_attrs.get("fixed_params")
    known = {**constants, **_fields(recorded.architecture), **(queued or {}), **trial.params}
    new.params, new.distributions = {}, {}
    try:
        parameters, distributions = _located(study, known, recorded.key)
    except InputError as error:
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            raise InputError(
                f"--extend: trial {trial.number} ({recorded.label}) is not in the space any more: {error}; a space may "
                "only grow. A new study is made by --new-study"
            ) from error
        if trial.state == TrialState.WAITING:
            new.state, new.datetime_start, new.datetime_complete = TrialState.FAIL, datetime.now(), datetime.now()
            new.user_attrs |= {"resnas.ending": "skipped", "resnas.reason": "not in the changed space"}
        return new
    if queued is not None:
        new.system_attrs["fixed_params"] = parameters
    if trial.state != TrialState.WAITING:
        new.params, new.distributions = parameters, distributions
    return new


def _located(study: Study, known: Mapping[str, Any], key: str) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the parameters of an architecture in the space, with their distributions. Raises InputError."""
    fixed = FixedTrial(dict(known))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a value outside: `build` below refuses it
            study.search_space.sample(fixed)
    except (ValueError, StopIteration) as error:
        raise InputError(str(error).partition("\n")[0]) from error
    parameters = {name: known[name] for name in fixed.distributions}
    architecture = study.search_space.build(parameters)
    if key and architecture.key != key:
        raise InputError("a value that it has is not the one of the space")
    return parameters, fixed.distributions


def _fields(architecture: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a recorded architecture by the names of parameters."""
    return {} if architecture is None else _by_name(architecture, architecture["training"], [architecture["residual"]])


def _constants(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a recorded space that did not vary, by the names that they have as parameters."""
    architecture = fingerprint["architecture"]
    values = _by_name(architecture, fingerprint["training"], architecture["residual"])
    return {name: value for name, value in values.items() if not isinstance(value, list | dict)}


def _by_name(
    architecture: Mapping[str, Any], training: Mapping[str, Any], variants: Sequence[Mapping[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return nested values by the names of parameters; a variant is `{topology: {option: value}}`."""
    values = {f"architecture.{name}": value for name, value in architecture.items()}
    values |= {f"training.{name}": value for name, value in training.items()}
    for variant in variants:
        for name, options in variant.items():
            values |= {f"architecture.residual.{name}.{option}": value for option, value in options.items()}
    if len(variants) == 1:
        values["architecture.residual"] = next(iter(variants[0]))
    return values
