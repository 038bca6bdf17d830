"""Training of one trial with Lightning: the only place that imports it."""

from resnas.train.run import inspect_task, run_trial

__all__ = ["inspect_task", "run_trial"]
