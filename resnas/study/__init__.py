"""The study: what a study file says, validated."""

from resnas.fingerprint import changes, derive_seed
from resnas.study.fields import Bound, Budget, Ranking, Search
from resnas.study.study import Study, json_schema, known_metrics, task_registry

__all__ = [
    "Bound",
    "Budget",
    "Ranking",
    "Search",
    "Study",
    "changes",
    "derive_seed",
    "json_schema",
    "known_metrics",
    "task_registry",
]
