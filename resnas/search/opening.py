"""Opening the Optuna study of a resnas study: its fingerprint, its data, its folder."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from resnas.errors import InputError, ResnasError
from resnas.search.advisory import one_at_a_time
from resnas.search.patience import causes, is_database_error, root_message
from resnas.search.storage import locate, open_storage, refusal, refuse_network_file_system
from resnas.study import Study, changes

FINGERPRINT = "resnas.fingerprint"
DATA = "resnas.data_sha256"
EXTENSIONS = "resnas.extensions"
"""When the space of the study was widened, after how many trials, and how."""
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ENOENT}
"""What the system says of a folder that cannot be written."""

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(study: Study) -> optuna.Study:
    """Return the Optuna study, made if it does not exist yet.

    Raises:
        InputError: the results folder cannot be written, the storage does not answer or lies on a network file system
            that it is not safe on, or the study was started with another space, task, budget or objectives.
    """
    make_results_folder(study)
    location = locate(study)
    refuse_network_file_system(location)
    try:
        with one_at_a_time(location, study.name):
            storage = open_storage(location)
            optuna_study = optuna.create_study(
                storage=storage,
                study_name=current_name(storage, study.name),
                directions=list(study.directions.values()),
                load_if_exists=True,
            )
            _check_fingerprint(study, optuna_study)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna_study.set_metric_names(list(study.objectives))
    except InputError:
        raise
    except Exception as error:
        raise refusal(location, error) from error
    return optuna_study


@contextlib.contextmanager
def writing(study: Study) -> Iterator[None]:
    """Make a sentence of what keeps a search from going on: a full disk, a storage that is gone, no process to be had.

    Raises:
        ResnasError: with that sentence.
    """
    try:
        yield
    except ResnasError:
        raise
    except Exception as error:
        is_database = isinstance(error, optuna.exceptions.StorageInternalError) or is_database_error(error)
        if not is_database and not isinstance(error, OSError):
            raise
        cause = str(next((one for one in causes(error) if isinstance(one, OSError)), None) or root_message(error))
        what = "the system refused"
        if is_database:
            what = f"cannot write to {locate(study).shown}"
        elif isinstance(error, OSError) and _is_of_results(study, error):
            what = f"cannot write to {study.results_folder}"
        raise ResnasError(
            f"{what}: {cause}. What was recorded is safe; when this is mended, the same command goes on"
        ) from error


def _is_of_results(study: Study, error: OSError) -> bool:
    """Whether the results folder is what an error is about, rather than another file, a process or a socket."""
    if error.filename is None:
        return error.errno in UNWRITABLE - {errno.ENOENT}
    file, folder = Path(os.path.abspath(os.fsdecode(error.filename))), Path(os.path.abspath(study.results_folder))
    return error.errno in UNWRITABLE and file.is_relative_to(folder)


def load_trials(study: Study) -> list[FrozenTrial]:
    """Return the trials of a study that was started before.

    Raises:
        InputError: there is no such study.
    """
    return existing_study(study).get_trials(deepcopy=False)


def existing_study(study: Study) -> optuna.Study:
    """Return the Optuna study without making one. Raises InputError where there is none."""
    location = locate(study)
    try:
        storage = open_storage(location, make=False)
        return optuna.load_study(storage=storage, study_name=current_name(storage, study.name))
    except (KeyError, FileNotFoundError):
        raise InputError(
            f"the study {study.name!r} has no results yet; start it with: python cli.py search {study.path}"
        ) from None
    except Exception as error:
        raise refusal(location, error) from error


def current_name(storage: BaseStorage, name: str) -> str:
    """Return the name of the Optuna study that goes on: each time its space was widened, a new one was made."""
    return _numbered(name, _extended(storage, name))


def next_name(storage: BaseStorage, name: str) -> str:
    """Return the name that the Optuna study will have when its space is widened next."""
    return _numbered(name, _extended(storage, name) + 1)


def _extended(storage: BaseStorage, name: str) -> int:
    """Return how many Optuna studies there are, one after the other; a study without fingerprint is not ready."""
    ready = {one.study_name for one in storage.get_all_studies() if FINGERPRINT in one.user_attrs}
    return next(number for number in itertools.count(1) if _numbered(name, number + 1) not in ready)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} [{number}]"


def make_results_folder(study: Study) -> None:
    """Make the results folder and write a file without a name into it. Raises InputError where that fails."""
    folder = study.results_folder
    try:
        (folder / "trials").mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"cannot write results to {folder}: {error.strerror or error}") from error


def set_attributes(optuna_study: optuna.Study, trial: FrozenTrial | optuna.Trial, **attributes: Any) -> None:
    """Set attributes `resnas.<name>` of a trial."""
    for name, value in attributes.items():
        optuna_study._storage.set_trial_user_attr(trial._trial_id, f"resnas.{name}", value)


def _check_fingerprint(study: Study, optuna_study: optuna.Study) -> None:
    """Refuse to go on with a study that was started differently."""
    now = fingerprint_of(study)
    before = optuna_study.user_attrs.get(FINGERPRINT)
    if before is None:
        optuna_study.set_user_attr(FINGERPRINT, now)
    elif different := changes(before, now):
        raise _incomparable(study, f"was started with other settings: {'; '.join(different)}", "--extend")


def fingerprint_of(study: Study) -> dict[str, Any]:
    """Return the fingerprint as a storage gives it back."""
    read: dict[str, Any] = json.loads(json.dumps(study.fingerprint()))
    return read


def check_data(study: Study, optuna_study: optuna.Study, data_sha256: str) -> None:
    """Remember the hash of the data; refuse to go on with other data. Raises InputError."""
    with one_at_a_time(locate(study), study.name):
        before = optuna_study.user_attrs.get(DATA)
        if before is None:
            optuna_study.set_user_attr(DATA, data_sha256)
        elif before != data_sha256:
            hashes = f"sha256 {before[:12]}…, now {data_sha256[:12]}…"
            raise _incomparable(study, f"was started with other data ({hashes})")


def _incomparable(study: Study, difference: str, extension: str = "") -> InputError:
    """Say why old and new trials could not be compared, and what to do."""
    remedy = "Undo the change, or give --new-study NAME for a study of its own"
    remedy += f", or {extension} where the space has only grown" if extension else ""
    return InputError(f"the study {study.name!r} {difference}. Its old and new trials could not be compared. {remedy}")


def trial_folder(study: Study, number: int) -> Path:
    """Return the folder of a trial's files."""
    return study.results_folder / "trials" / f"{number:04d}"
