"""The search: an Optuna study, proposals of architectures, and the coordinator that runs them. The door to Optuna."""

from resnas.search.coordinator import Coordinator
from resnas.search.ledger import Ledger
from resnas.search.opening import existing_study, load_trials, open_study
from resnas.search.snapshot import Snapshot

__all__ = ["Coordinator", "Ledger", "Snapshot", "existing_study", "load_trials", "open_study"]
