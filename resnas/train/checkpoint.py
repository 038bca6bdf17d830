"""The checkpoints of a trial: written whole, marked with what they belong to, and taken over by the trial that goes on.

Plain types and tensors only, so that they are read without running code that a file may hold (`weights_only`).
"""

from __future__ import annotations

import io
import json
import logging
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from resnas.atomic import link_or_copy, write_bytes
from resnas.trial import TrialSpec

FORMAT = 1
"""Of what a checkpoint holds; one of another format is never used."""
BEST, LAST = "best", "last"
_IDENTITY = "resnas.identity"

Identity = dict[str, str]
log = logging.getLogger(__name__)


class Resumed(NamedTuple):
    """A checkpoint that a trial goes on from."""

    path: Path
    step: int


class Saved(NamedTuple):
    """What a checkpoint holds of its trial."""

    identity: dict[str, Any]
    """Format, architecture, task, budget, seed, data_seed, data (sha256) and, where there were any, trainer options."""
    step: int
    """Training steps done."""
    model: dict[str, Tensor]
    """State of the model, by name of the parameter."""


class Checkpoints(Callback):
    """Writes `last.ckpt` after each validation, and `best.ckpt`, the one with the lowest val_loss.

    Lightning's ModelCheckpoint leaves the last one as it is where the loss has not fallen, and writes everything twice
    where it has.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lowest_loss = math.inf

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Write the checkpoint of this step."""
        best, last = (self._folder / f"{name}.ckpt" for name in (BEST, LAST))
        loss = module.validation_metrics["val_loss"]
        if loss < self._lowest_loss:
            self._lowest_loss = loss
            trainer.save_checkpoint(best)
            if trainer.is_global_zero:
                link_or_copy(best, last)  # in this order: a last one is never without the best one it knows of
        else:
            trainer.save_checkpoint(last)

    def state_dict(self) -> dict[str, Any]:
        """Return what a trial that goes on must know."""
        return {"lowest_loss": self._lowest_loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what the interrupted trial knew."""
        self._lowest_loss = state_dict["lowest_loss"]


class WholeFiles(TorchCheckpointIO):
    """Writes a checkpoint in one step and marks it with its trial.

    Lightning's own way goes through the system's folder for temporary files, from where a file is copied, not moved,
    where that is another disk: killed in between, it leaves a part.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint, whole or not at all."""
        content = io.BytesIO()
        torch.save(checkpoint | {_IDENTITY: self._identity}, content)
        write_bytes(Path(path), content.getbuffer())


def identity(spec: TrialSpec, data_sha256: str) -> Identity:
    """Return what must be equal in two trials for one to go on from the checkpoint of the other."""
    parts = {
        "format": FORMAT,
        "architecture": spec.architecture,
        "task": spec.task,
        "budget": spec.budget,
        "seed": spec.seed,
        "data_seed": spec.data_seed,
        "data": data_sha256,
        **({"trainer": spec.lasting_options} if spec.lasting_options else {}),
    }
    return {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}


def take_over(source: str | None, folder: Path, identity: Identity) -> Resumed | None:
    """Bring the checkpoints of an interrupted trial into the folder of the one that goes on.

    Args:
        source: the `last.ckpt` of the interrupted trial, its `best.ckpt` beside it; None is a trial from the start.
        folder: where the trial that goes on keeps its checkpoints; may be the same.
        identity: of the trial that goes on.

    Returns:
        The checkpoint; None, with a warning in the log, where it cannot be used.
    """
    if source is None:
        return None
    last = Path(source)
    best = last.with_name(f"{BEST}.ckpt")
    try:
        step = _step(last, identity)
        for path in (best, last):  # the last one at last: with it, this folder has all
            if path.parent.resolve() != folder.resolve():
                link_or_copy(path, folder / path.name)
            elif not path.is_file():
                raise FileNotFoundError(f"there is no {path}")
    except Exception as error:  # whatever torch makes of a damaged file: it has no class of errors of its own for that
        reason = str(error).strip().split("\n")[0]
        log.warning("starting from the beginning, since %s cannot be used: %s", source, reason)
        return None
    return Resumed(folder / last.name, step)


def read(path: Path) -> Saved:
    """Return what a checkpoint holds. Raises OSError or ValueError where there is none, or it is damaged."""
    try:
        content = _content(path)
    except (zipfile.BadZipFile, RuntimeError, EOFError) as error:
        raise ValueError(str(error).strip().split("\n")[0]) from error
    prefix = "model."
    model = {
        name.removeprefix(prefix): tensor for name, tensor in content["state_dict"].items() if name.startswith(prefix)
    }
    found = content.get(_IDENTITY, {})
    return Saved({name: json.loads(part) for name, part in found.items()}, int(content["global_step"]), model)


def _step(path: Path, identity: Identity) -> int:
    """Return the training step of a checkpoint. Raises ValueError where it is damaged or belongs to another trial."""
    content = _content(path)
    found = content.get(_IDENTITY, {})
    if different := [name for name in identity | found if found.get(name) != identity.get(name)]:
        raise ValueError(f"it belongs to a trial with another {', '.join(different)}")
    return int(content["global_step"])


def _content(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as parts:  # torch writes checksums, but does not look at them
        if damaged := parts.testzip():
            raise ValueError(f"its part {damaged} is damaged")
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content
