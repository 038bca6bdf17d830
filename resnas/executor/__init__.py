"""Runs trials in processes; knows nothing of studies.

`events` says what an executor is, `local` runs trials on this machine, `process` is what happens inside the process of
a trial. `ray` runs trials on the nodes of a Ray cluster, `cluster` joins it, `shipping` collects the code that its
nodes need, `slot` runs there. `choice` makes the executor that a study asks for.
"""

from resnas.executor.choice import make_executor
from resnas.executor.events import Aborted, Ended, Executor, Limits, Reported
from resnas.executor.local import LocalExecutor
from resnas.executor.process import inspect_task

__all__ = ["Aborted", "Ended", "Executor", "Limits", "LocalExecutor", "Reported", "inspect_task", "make_executor"]
