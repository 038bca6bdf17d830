"""Opening the Optuna study of a resnas study: its storage, its fingerprint, its lock, and what a dead coordinator
left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from resnas.errors import InputError, ResnasError
from resnas.study import Study, changes

FINGERPRINT = "resnas.fingerprint"
DATA = "resnas.data_sha256"

optuna.logging.set_verbosity(optuna.logging.WARNING)


def storage_url(study: Study) -> str:
    """Return the Optuna storage URL of a study: the one it names, or an SQLite file in its results folder."""
    return study.storage or f"sqlite:///{study.results_folder / 'study.db'}"


def open_study(study: Study) -> optuna.Study:
    """Return the Optuna study, made if it does not exist yet.

    Raises:
        InputError: the results folder cannot be written, the storage does not answer, or the study was started with
            another space, task, budget or objectives.
    """
    make_results_folder(study)
    try:
        optuna_study = optuna.create_study(
            storage=_storage(storage_url(study)),
            study_name=study.name,
            directions=list(study.directions.values()),
            load_if_exists=True,
        )
    except Exception as error:
        raise _no_answer(study, error) from error
    _check_fingerprint(study, optuna_study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna_study.set_metric_names(list(study.objectives))
    return optuna_study


def load_trials(study: Study) -> list[FrozenTrial]:
    """Return the trials of a study that was started before.

    Raises:
        InputError: there is no such study.
    """
    return existing_study(study).get_trials(deepcopy=False)


def existing_study(study: Study) -> optuna.Study:
    """Return the Optuna study without making one. Raises InputError where there is none."""
    missing = InputError(
        f"the study {study.name!r} has no results yet; start it with: python cli.py search {study.path}"
    )
    if study.storage is None and not (study.results_folder / "study.db").is_file():
        raise missing
    try:
        return optuna.load_study(storage=_storage(storage_url(study)), study_name=study.name)
    except KeyError:
        raise missing from None
    except Exception as error:
        raise _no_answer(study, error) from error


def make_results_folder(study: Study) -> None:
    """Make the results folder and try to write into it. Raises InputError where that fails."""
    folder = study.results_folder
    try:
        (folder / "trials").mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"cannot write results to {folder}: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(study: Study) -> Iterator[None]:
    """Keep a second coordinator away from this study; the lock goes with the process that holds it.

    Raises:
        ResnasError: another coordinator runs this study.
    """
    with (study.results_folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResnasError(f"another search is running the study {study.name!r} (its lock is {file.name})") from None
        yield


def set_attributes(optuna_study: optuna.Study, trial: FrozenTrial | optuna.Trial, **attributes: Any) -> None:
    """Set attributes `resnas.<name>` of a trial."""
    for name, value in attributes.items():
        optuna_study._storage.set_trial_user_attr(trial._trial_id, f"resnas.{name}", value)


def _storage(url: str) -> optuna.storages.BaseStorage:
    """Return the storage; one that does not answer fails within seconds rather than minutes."""
    timeout = (
        {"connect_timeout": 10} if url.startswith("postgresql") else {"timeout": 60} if url.startswith("sqlite") else {}
    )
    return optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": timeout})


def _no_answer(study: Study, error: Exception) -> InputError:
    """Say that the storage cannot be used, without the password that its URL may hold."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        shown = make_url(storage_url(study)).render_as_string(hide_password=True)
    except ArgumentError:
        shown = "the URL given"
    cause = str(getattr(error, "orig", None) or error.__cause__ or error).strip().split("\n")[0]
    return InputError(f"{study.path}: storage: cannot use {shown}: {cause}")


def _check_fingerprint(study: Study, optuna_study: optuna.Study) -> None:
    """Refuse to go on with a study that was started differently."""
    now = json.loads(json.dumps(study.fingerprint()))
    before = optuna_study.user_attrs.get(FINGERPRINT)
    if before is None:
        optuna_study.set_user_attr(FINGERPRINT, now)
    elif different := changes(before, now):
        raise _incomparable(study, f"was started with other settings: {'; '.join(different)}")


def check_data(study: Study, optuna_study: optuna.Study, data_sha256: str) -> None:
    """Remember the hash of the data; refuse to go on with other data. Raises InputError."""
    before = optuna_study.user_attrs.get(DATA)
    if before is None:
        optuna_study.set_user_attr(DATA, data_sha256)
    elif before != data_sha256:
        hashes = f"sha256 {before[:12]}…, now {data_sha256[:12]}…"
        raise _incomparable(study, f"was started with other data ({hashes})")


def _incomparable(study: Study, difference: str) -> InputError:
    """Say why old and new trials could not be compared, and what to do."""
    remedy = f"Undo the change, or copy {study.path} to a new name for a new study"
    return InputError(f"the study {study.name!r} {difference}; its old and new trials could not be compared. {remedy}")


def trial_folder(study: Study, number: int) -> Path:
    """Return the folder of a trial's files."""
    return study.results_folder / "trials" / f"{number:04d}"
