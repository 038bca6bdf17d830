"""The executor that a study asks for."""

from __future__ import annotations

from resnas.executor.events import Executor
from resnas.executor.local import LocalExecutor
from resnas.study import Study


def make_executor(study: Study) -> Executor:
    """Return the executor of a study, ready to run trials.

    Raises:
        InputError: the Ray cluster cannot be used as given.
        ResnasError: the Ray cluster has no room.
    """
    search = study.search
    if search.executor == "local":
        return LocalExecutor(search.workers, search.threads_per_trial)
    from resnas.executor.ray import RayExecutor
    from resnas.executor.shipping import dotted_names

    return RayExecutor(
        search.ray_address,
        search.workers,
        search.threads_per_trial,
        search.cpus_per_trial or search.threads_per_trial,
        search.gpus_per_trial,
        dotted_names(study.fingerprint()),
    )
