"""Lightning's Trainer as a trial needs it, and which of its options a user may give (`train --trainer key=value`)."""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.plugins.environments import LightningEnvironment

from resnas.errors import InputError, nearest
from resnas.study import Budget
from resnas.train import checkpoint

if TYPE_CHECKING:
    from resnas.tasks.task import Batch

_STEPS = "use --steps"
_VALIDATIONS = "use --set budget.validations=NUMBER"
_CLIPPING = "use --set training.gradient_clip=NORM"
_CHECKPOINTS = "best.ckpt and last.ckpt are always written, after each validation"
OWNED: dict[str, str] = {
    "max_steps": _STEPS,
    "min_steps": _STEPS,
    "max_epochs": _STEPS,
    "min_epochs": _STEPS,
    "limit_train_batches": _STEPS,
    "overfit_batches": _STEPS,
    "fast_dev_run": "use --steps 1 --set budget.validations=1",
    "val_check_interval": _VALIDATIONS,
    "check_val_every_n_epoch": _VALIDATIONS,
    "num_sanity_val_steps": _VALIDATIONS,
    "limit_val_batches": "use --set budget.validation_batches=NUMBER",
    "limit_test_batches": "the whole test split is measured",
    "limit_predict_batches": "nothing is predicted",
    "gradient_clip_val": _CLIPPING,
    "gradient_clip_algorithm": _CLIPPING,
    "default_root_dir": "use --output",
    "callbacks": _CHECKPOINTS,
    "enable_checkpointing": _CHECKPOINTS,
    "logger": "metrics.csv and tensorboard are always written",
    "log_every_n_steps": "metrics.csv and tensorboard are always written",
    "enable_progress_bar": "a bar is shown where there is a terminal",
    "enable_model_summary": "python cli.py check shows parameters and FLOPs",
    "barebones": "it would switch off what resnas needs",
    "plugins": "use --trainer strategy=… or precision=…",
}
"""Options of Lightning's Trainer that a trial sets itself, and what to do instead."""


class BatchStream:
    """Batches as Lightning wants them: an iterable, from the batch after the first `skipped` ones on, every `every`th
    of them."""

    def __init__(self, batches: Callable[[], Iterator[Batch]], skipped: int = 0, every: int = 1) -> None:
        self._batches = batches
        self._skipped = skipped
        self._every = every

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(self._batches(), self._skipped, None, self._every)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that Lightning's Trainer does not have, and those that resnas sets itself. Raises InputError."""
    known = [name for name in inspect.signature(Trainer).parameters if name not in OWNED]
    for name, value in options.items():
        if name in OWNED:
            raise InputError(f"--trainer {name}: resnas sets that itself; {OWNED[name]}")
        if name not in known:
            raise InputError(
                f"--trainer {name}: Lightning's Trainer has no such option; it has: {', '.join(known)}"
                + nearest(name, [*known, *OWNED])
            )
        if name == "accumulate_grad_batches" and (type(value) is not int or value < 1):
            raise InputError(f"--trainer {name}: must be a whole number of at least 1, not {value!r}")


def make_trainer(
    folder: Path,
    budget: Budget,
    progress: Callback,
    identity: checkpoint.Identity | None = None,
    options: Mapping[str, Any] | None = None,
) -> Trainer:
    """Return a quiet trainer that keeps its files in the trial's folder: metrics as CSV and TensorBoard, two
    checkpoints.

    Args:
        folder: of the trial.
        budget: its steps, validations and precision.
        progress: called at its steps.
        identity: of the trial, with which its checkpoints are marked.
        options: of Lightning's Trainer, instead of those that a trial has by itself.

    Raises:
        InputError: Lightning refuses an option.
    """
    options = options or {}
    check_options(options)
    _quieten_lightning()
    cuda = torch.cuda.is_available()
    auto = cuda and torch.cuda.is_bf16_supported()
    bfloat16 = auto if budget.precision == "auto" else budget.precision == "bfloat16"
    batches_per_step = options.get("accumulate_grad_batches", 1)
    own: dict[str, Any] = {
        "max_steps": budget.steps,
        "accelerator": "cuda" if cuda else "cpu",
        "devices": 1,
        "deterministic": "warn" if cuda else None,
        "plugins": [
            LightningEnvironment(),  # a trial is one process, also where a cluster has set its variables
            checkpoint.WholeFiles(identity or {}),
        ],
        "precision": "bf16-mixed" if bfloat16 else "32-true",
        "val_check_interval": math.ceil(budget.steps / budget.validations) * batches_per_step,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,
        "logger": [
            CSVLogger(folder, name="", version=""),
            TensorBoardLogger(folder, name="", version="tensorboard", default_hp_metric=False),
        ],
        # progress comes first: a pruned trial writes no more
        "callbacks": [progress, checkpoint.Checkpoints(folder / "checkpoints")],
        "log_every_n_steps": budget.steps + 1,  # the module logs itself
        "enable_checkpointing": False,  # by our own callback
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    try:
        return Trainer(**own | dict(options))
    except Exception as error:
        if not options:
            raise
        given = " ".join(f"--trainer {name}={value}" for name, value in options.items())
        raise InputError(f"{given}: Lightning refuses that: {str(error).strip().partition(chr(10))[0]}") from error


def _quieten_lightning() -> None:
    """Keep banners and advice out of the trial's log; errors and our own warnings stay."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module=r"lightning\..*")
