"""The trained model that is exported: read from the folder of a trial, or from one that `train` has written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from resnas import __version__
from resnas.architecture import Architecture
from resnas.errors import InputError
from resnas.export.trained import read_result
from resnas.record import make_named
from resnas.tasks import TASKS
from resnas.tasks.task import Task, TaskShape
from resnas.train import checkpoint
from resnas.trial import TrialResult


@dataclass(frozen=True)
class Source:
    """A trained model, what it was trained on, and what was measured."""

    origin: str
    """Which trial it is, in words."""
    architecture: Architecture
    task: dict[str, Any]
    """{name: {option: value}}."""
    shape: TaskShape
    budget: dict[str, Any]
    seed: int
    data_seed: int
    trainer: dict[str, Any]
    """Options of Lightning's Trainer that were given."""
    weights: dict[str, Tensor]
    """After the last step, by name in `resnas.model.Model`."""
    result: TrialResult

    @property
    def versions(self) -> dict[str, str]:
        """Versions and machine of the training, and the resnas that exports."""
        return self.result.versions | {"resnas": __version__}


def read_source(folder: Path, origin: str) -> Source:
    """Read a finished trial from its folder.

    Raises:
        InputError: there is no finished trial, its files are damaged, or its topology or task cannot be imported.
    """
    last = folder / "checkpoints" / f"{checkpoint.LAST}.ckpt"
    try:
        saved, result = checkpoint.read(last), read_result(folder)
        identity = saved.identity
        task, steps = identity["task"], identity["budget"]["steps"]
    except FileNotFoundError:
        raise InputError(f"{folder}: holds no trained model; there is no {last}") from None
    except (OSError, ValueError, TypeError, KeyError, json.JSONDecodeError) as error:
        raise InputError(f"{folder}: its checkpoint or result cannot be read: {error}") from error
    if saved.step < steps or result is None or result.state != "complete":
        raise InputError(f"{folder}: is not trained to the end, but for {saved.step} of {steps} steps; train it first")
    return Source(
        origin=origin,
        architecture=Architecture(**identity["architecture"]),
        task=task,
        shape=make_named(task, TASKS, Task, "task").shape(),
        budget=identity["budget"],
        seed=identity["seed"],
        data_seed=identity["data_seed"],
        trainer=identity.get("trainer", {}),
        weights=saved.model,
        result=result,
    )
