"""The files of a results folder that say how a study was run; written whole or not at all."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from resnas.atomic import write_text
from resnas.study import Study


def write_json(path: Path, values: Any) -> None:
    """Write JSON."""
    write_text(path, json.dumps(values, indent=1))


def write_yaml(path: Path, values: Any) -> None:
    """Write YAML."""
    write_text(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def study_as_used(study: Study) -> dict[str, Any]:
    """Return the study with its overrides, naming the `space.yaml` beside it; without the storage URL, which may hold
    a password."""
    shown = study.fingerprint()
    return {
        "resnas": study.resnas,
        "space": "space.yaml",
        "task": shown["task"],
        "budget": shown["budget"],
        "objectives": shown["objectives"],
        "limits": shown.get("limits", {}),
        "search": study.search.model_dump(mode="json"),
        "ranking": study.ranking.model_dump(mode="json"),
    }


def environment(study: Study, slots: int) -> dict[str, Any]:
    """Return what figures may depend on beside the files: versions, machine, seed."""
    packages = ("resnas", "optuna", "scikit-learn", "numpy")
    return {
        "packages": {name: metadata.version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "trials_at_a_time": slots,
        "threads_per_trial": study.search.threads_per_trial,
        "seed": study.search.seed,
    }
