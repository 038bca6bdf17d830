"""The weights file of an exported model: written with all that is needed to build the model again, and loaded."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from resnas.architecture import Architecture
from resnas.atomic import write_bytes
from resnas.errors import InputError
from resnas.export.source import Source
from resnas.model import Model
from resnas.tasks.task import TaskShape

WEIGHTS = "model.safetensors"


def write_weights(source: Source, folder: Path) -> None:
    """Write the weights as they are, with what describes them as metadata, each entry in JSON."""
    described: dict[str, Any] = {
        "architecture": source.architecture.model_dump(mode="json"),
        "task": source.task,
        "task_shape": asdict(source.shape),
        "budget": source.budget,
        "trainer": source.trainer,
        "seed": source.seed,
        "data_seed": source.data_seed,
        "data_sha256": source.result.data_sha256,
        "versions": source.versions,
    }
    metadata = {"format": "pt"} | {name: json.dumps(value, sort_keys=True) for name, value in described.items()}
    weights = {name: tensor.contiguous() for name, tensor in source.weights.items()}
    write_bytes(folder / WEIGHTS, save(weights, metadata))


def load_exported(folder: str | Path) -> Model:
    """Return the model of an exported folder, with its weights bit for bit.

    A topology of the user's own is imported from where it lies, or else from the folder.

    Raises:
        InputError: there is no exported model, it is damaged, or its topology cannot be imported.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise InputError(f"{folder}: holds no exported model; there is no {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
        shape = TaskShape(**json.loads(metadata["task_shape"]))
        with _importable(Path(folder)):
            architecture = Architecture(**json.loads(metadata["architecture"]))
        model = Model(architecture, shape)
        model.load_state_dict(weights)
    except InputError:
        raise
    except (SafetensorError, ValidationError, ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{path}: is damaged, or not written by resnas export: {reason}") from error
    return model


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules be imported from a folder where they lie nowhere else."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
