"""The search: an Optuna study, proposals of architectures, and the coordinator that runs them. The door to Optuna."""

from resnas.search.coordinator import Coordinator, Snapshot
from resnas.search.opening import existing_study, load_trials, open_study

__all__ = ["Coordinator", "Snapshot", "existing_study", "load_trials", "open_study"]
