"""A storage that outlasts a database which goes away and comes back: calls are repeated, and none counts twice.

A call whose connection breaks may or may not have taken effect. Attributes, parameters and values can be written
again; a new trial carries a token by which it is found again; a trial that has ended already as it is told to end has
been told. One case is left to the caller: a queued trial whose start was not confirmed may be RUNNING, without anything
that the search writes to a trial it runs; Optuna takes another one instead.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from resnas.errors import ResnasError

PATIENCE_S = 60.0
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
TOKEN = "resnas.token"
"""System attribute of a trial: which call made it."""
Value = TypeVar("Value")
_logger = logging.getLogger(__name__)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and what caused it."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def messages(error: BaseException) -> str:
    """Return the names and messages of an error and its causes."""
    return "; ".join(f"{type(getattr(one, 'orig', None) or one).__name__}: {one}" for one in causes(error))


def is_transient(error: BaseException) -> bool:
    """Whether an error says that the database is away or busy, rather than that a call is wrong."""
    from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

    found = next((one for one in causes(error) if isinstance(one, DBAPIError)), None)
    if found is None or isinstance(error, ResnasError):  # one that says so has been patient already
        return False
    if "sqlite" in type(found.orig).__module__:
        return "locked" in str(found.orig)
    return found.connection_invalidated or isinstance(found, (OperationalError, InterfaceError))


def is_database_error(error: BaseException) -> bool:
    """Whether a database refused or could not do something."""
    from sqlalchemy.exc import DBAPIError

    return any(isinstance(one, DBAPIError) for one in causes(error))


def root_message(error: BaseException) -> str:
    """Return the first line of what the driver, or else the first cause, says."""
    root = list(causes(error))[-1]
    return str(getattr(root, "orig", None) or root).strip().partition("\n")[0]


class PatientStorage(RDBStorage):
    """An RDBStorage whose calls wait for a database that is away, up to `PATIENCE_S`, and then raise a ResnasError."""

    def __init__(self, *arguments: Any, shown: str = "", **options: Any) -> None:
        self._shown = shown
        self._gave_up = False
        self._repeated: set[str] = set()
        try:
            super().__init__(*arguments, **options)
        except BaseException:
            if (engine := getattr(self, "engine", None)) is not None:
                engine.dispose()
            raise
        weakref.finalize(self, self.engine.dispose)  # close the connections that wait in the pool

    def patiently(self, call: Callable[[bool], Value]) -> Value:
        """Return `call(again)`, called again with True while the database is away.

        Raises:
            ResnasError: it has been away for too long; later calls then fail at once, until one succeeds.
        """
        deadline, wait_s, again = time.monotonic() + PATIENCE_S, FIRST_WAIT_S, False
        while True:
            try:
                value = call(again)
            except Exception as error:
                if not is_transient(error):
                    raise
                if self._gave_up or time.monotonic() > deadline:
                    self._gave_up = True
                    cause = messages(error).split("\n")[0]
                    raise ResnasError(f"the storage {self._shown} is away for {PATIENCE_S:g} s: {cause}") from error
                if not again:
                    _logger.warning("The storage %s is away; trying again for up to %g s", self._shown, PATIENCE_S)
                time.sleep(wait_s * random.uniform(0.5, 1.0))  # not all coordinators at the same time
                wait_s, again = min(2 * wait_s, LONGEST_WAIT_S), True
            else:
                self._gave_up = False
                return value

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set state and values, as Optuna does; a trial that has ended just so before the call was repeated is told."""
        tell = super().set_trial_state_values

        def call(again: bool) -> bool:
            try:
                return tell(trial_id, state, values)
            except UpdateFinishedTrialError:
                found = self.get_trial(trial_id) if again else None
                if found is None or (found.state, found.values) != (state, list(values) if values else None):
                    raise
                return True

        return self.patiently(call)

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        """Make a trial that carries a token, so that a repeated call finds it."""
        create = super()._create_new_trial
        template = copy.deepcopy(template_trial) or create_trial(state=TrialState.RUNNING)
        token = uuid.uuid4().hex
        template.system_attrs = {**template.system_attrs, TOKEN: token}
        try:
            return self.patiently(lambda again: create(study_id, template))
        finally:
            self._repeated.discard(token)

    def _get_prepared_new_trial(self, study_id: int, template_trial: FrozenTrial | None, session: Any) -> Any:
        """Return the trial that an earlier try of the same call made, else a new one; the study's row is locked."""
        from optuna.storages._rdb.models import TrialModel, TrialSystemAttributeModel

        token = template_trial.system_attrs.get(TOKEN) if template_trial is not None else None
        if token in self._repeated:
            made = (
                session.query(TrialModel)
                .join(TrialSystemAttributeModel)
                .filter(
                    TrialModel.study_id == study_id,
                    TrialSystemAttributeModel.key == TOKEN,
                    TrialSystemAttributeModel.value_json == f'"{token}"',
                )
                .one_or_none()
            )
            if made is not None:
                return made
        if token is not None:
            self._repeated.add(token)
        return super()._get_prepared_new_trial(study_id, template_trial, session)


def _repeatable(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of RDBStorage whose calls may be repeated."""

    @functools.wraps(method)
    def patient(self: PatientStorage, *arguments: Any, **options: Any) -> Any:
        return self.patiently(lambda again: method(self, *arguments, **options))

    return patient


for _name in (
    "_get_best_trial_id",
    "_get_trials",
    "_set_trial_param",
    "create_new_study",
    "get_all_studies",
    "get_study_directions",
    "get_study_id_from_name",
    "get_study_name_from_id",
    "get_study_system_attrs",
    "get_study_user_attrs",
    "get_trial",
    "get_trial_id_from_study_id_trial_number",
    "set_study_system_attr",
    "set_study_user_attr",
    "set_trial_intermediate_value",
    "set_trial_system_attr",
    "set_trial_user_attr",
):
    setattr(PatientStorage, _name, _repeatable(getattr(RDBStorage, _name)))
