"""Neural architecture search over residual topologies: which one to use, which of its properties cut dilution, how
sure is that.

The public names are imported when they are first used, so that `import resnas` is light.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

__version__ = version("resnas")

_HOMES = {
    "Architecture": "resnas.architecture",
    "InputError": "resnas.errors",
    "Ranking": "resnas.ranking",
    "ResnasError": "resnas.errors",
    "SearchSpace": "resnas.space",
    "Study": "resnas.study",
    "Task": "resnas.tasks.task",
    "Topology": "resnas.residual",
    "load_exported": "resnas.export.loading",
    "rank": "resnas.ranking",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'resnas' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
