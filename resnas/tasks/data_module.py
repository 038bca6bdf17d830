"""A task from a LightningDataModule of the user's: `resnas.tasks.data_module:DataModule` in YAML.

The module's loaders give batches (inputs, targets) as `resnas.tasks.task.Batch`; the options here say what shape they
have. Lightning is not imported: whatever has the methods of a LightningDataModule will do.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from resnas.errors import InputError
from resnas.record import Count
from resnas.tasks.task import Direction, Split, Task, TaskShape

if TYPE_CHECKING:
    from torch import Tensor

    from resnas.tasks.task import Batch

HASHED_TRAIN_BATCHES = 16
"""Training batches that the hash of the data covers; the held-out ones are covered whole."""


class DataModule(Task):
    """Train on what a LightningDataModule loads."""

    metric_directions: ClassVar[dict[str, Direction]] = {"accuracy": "maximize"}

    module: str
    """The class, as `package.module:Class`."""
    options: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    """Arguments of the class; `batch_size` is set by the study's budget where the class takes it."""
    inputs: Literal["tokens", "patches"]
    """Token numbers [examples, tokens], or patches [examples, tokens, features]."""
    input_size: Count
    """Number of different tokens, or features of a patch."""
    context: Count
    """Tokens (or patches) per example."""
    outputs: Count
    """Number of classes."""
    causal: bool = True
    """A position sees only itself and earlier ones, or all."""
    pooled: bool = False
    """One prediction per example, instead of one per position."""

    def shape(self) -> TaskShape:
        """Return the shape that the options say."""
        return TaskShape(self.inputs, self.input_size, self.context, self.outputs, self.causal, self.pooled)

    def load(self) -> DataModuleData:
        """Import the class and look at its data. Raises InputError where that fails."""
        return DataModuleData(self)


class DataModuleData:
    """Batches of a LightningDataModule; random numbers that its loaders draw depend on the seed alone."""

    def __init__(self, task: DataModule) -> None:
        self._task = task
        self._class = _imported(task.module)
        held_out = [batch for split in ("validation", "test") for batch in self.batches(split, 1)]
        train = itertools.islice(self.train_batches(1, seed=0), HASHED_TRAIN_BATCHES)
        digest = hashlib.sha256()
        for inputs, targets in itertools.chain(held_out, train):
            digest.update(inputs.numpy().tobytes())
            digest.update(targets.numpy().tobytes())
        self.sha256 = digest.hexdigest()

    def train_batches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield the batches of one epoch after the other."""
        import torch

        loader = self._made(batch_size, "fit").train_dataloader()
        with torch.random.fork_rng(devices=[]):
            state = torch.manual_seed(seed).get_state()
        iterator: Iterator[Any] = iter(())
        while True:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                batch = next(iterator, None)
                if batch is None:
                    iterator = iter(loader)
                    batch = next(iterator)
                state = torch.get_rng_state()
            yield batch

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> list[Batch]:
        """Return the batches of the module's validation or test loader."""
        module = self._made(batch_size, "fit" if split == "validation" else "test")
        loader = module.val_dataloader() if split == "validation" else module.test_dataloader()
        return list(itertools.islice(loader, limit))

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return the accuracy over positions that have a target."""
        _, targets = batch
        counted = targets >= 0
        correct = (logits.argmax(-1) == targets) & counted
        return {"accuracy": (float(correct.sum()), float(counted.sum()))}

    def _made(self, batch_size: int, stage: str) -> Any:
        options = dict(self._task.options)
        if "batch_size" in inspect.signature(self._class).parameters:
            options["batch_size"] = batch_size
        module = self._class(**options)
        module.prepare_data()
        module.setup(stage)
        return module


def _imported(name: str) -> Any:
    module, _, class_name = name.partition(":")
    try:
        return getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"cannot import the data module {name!r}: {error}; give it as 'package.module:Class'"
        ) from error
