"""The Lightning module of a trial: loss, optimiser groups, schedule, gradient clipping, validation metrics."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from resnas.architecture import Architecture, Training
from resnas.errors import TrialFailed
from resnas.model import Model, RMSNorm, loss_function
from resnas.tasks.task import TaskData, TaskShape

LOG_EVERY_STEPS = 10
FINAL_LEARNING_RATE_SHARE = 0.1
"""The cosine ends at this share of the peak."""
_HISTORIES = ("losses", "gradient_norms", "step_times_s")
"""Attributes of the module, a number per step."""


class TrialModule(LightningModule):
    """Trains one model on one task and keeps the history that the trial's result is made of."""

    def __init__(self, architecture: Architecture, shape: TaskShape, data: TaskData, steps: int) -> None:
        super().__init__()
        self.model = Model(architecture, shape)
        self.training_options = architecture.training
        self.data = data
        self.steps = steps
        self.losses: list[float] = []
        self.gradient_norms: list[float] = []
        self.step_times_s: list[float] = []
        self.validation_metrics: dict[str, float] = {}
        self.test_metrics: dict[str, float] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []
        """What the loggers were told, and at which step."""
        self._sums: dict[str, list[float]] = {}
        self._step_started = 0.0
        self._steps_before = -1
        self._random_state: dict[str, Tensor] = {}

    def configure_optimizers(self) -> Any:
        """Return AdamW over parameter groups with its per-step schedule."""
        training = self.training_options
        optimizer = torch.optim.AdamW(
            parameter_groups(self.model, training), lr=training.learning_rate, betas=(0.9, 0.95), fused=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_share(step, self.steps, training.warmup_share)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, batch_index: int) -> None:
        """Start the clock of a step, which takes several batches where gradients are accumulated."""
        if self.stepped:
            self._step_started = time.perf_counter()
            self._steps_before = self.global_step

    @property
    def stepped(self) -> bool:
        """Has the latest batch completed a step?"""
        return self.global_step > self._steps_before

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        """Return the loss; a loss that is not finite ends the trial."""
        inputs, targets = batch
        loss = loss_function(self.model(inputs), targets)
        self.losses.append(float(loss.detach()))
        if not math.isfinite(self.losses[-1]):
            raise TrialFailed(f"{self.losses[-1]} at training step {self.global_step + 1}")
        return loss

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Clip the norm of the whole gradient and remember what it was."""
        limit = self.training_options.gradient_clip or math.inf
        self.gradient_norms.append(float(nn.utils.clip_grad_norm_(self.model.parameters(), limit)))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_index: int) -> None:
        """Stop the clock; log now and then."""
        if not self.stepped:
            return
        self.step_times_s.append(time.perf_counter() - self._step_started)
        if self.global_step % LOG_EVERY_STEPS == 0 or self.global_step == self.steps:
            self._write(
                {
                    "train_loss": self.losses[-1],
                    "gradient_norm": self.gradient_norms[-1],
                    "learning_rate": self.trainer.optimizers[0].param_groups[0]["lr"],
                }
            )

    def on_validation_epoch_start(self) -> None:
        """Forget the sums of the validation before."""
        self._sums = defaultdict(lambda: [0.0, 0.0])

    def validation_step(self, batch: Any, batch_index: int) -> None:
        """Add a batch to the sums."""
        self._add(batch)

    def on_test_epoch_start(self) -> None:
        """Forget the sums of the validation before."""
        self._sums = defaultdict(lambda: [0.0, 0.0])

    def test_step(self, batch: Any, batch_index: int) -> None:
        """Add a batch to the sums."""
        self._add(batch)

    def on_test_epoch_end(self) -> None:
        """Make the metrics of the test split: `test_loss`, and those of the task as `test_<name>`."""
        self.test_metrics = {f"test_{name.removeprefix('val_')}": value for name, value in self._means().items()}

    def _add(self, batch: Any) -> None:
        inputs, targets = batch
        logits = self.model(inputs)
        counted = int((targets >= 0).sum())
        loss = float(loss_function(logits, targets)) * counted
        for name, (value, count) in {"val_loss": (loss, counted), **self.data.metrics(logits, batch)}.items():
            self._sums[name][0] += value
            self._sums[name][1] += count

    def on_validation_epoch_end(self) -> None:
        """Make the metrics of the whole split."""
        self.validation_metrics = self._means()
        if not math.isfinite(self.validation_metrics["val_loss"]):
            raise TrialFailed(f"in the validation at training step {self.global_step}")
        self.log("val_loss", self.validation_metrics["val_loss"], logger=False)
        self._write(self.validation_metrics)

    def _means(self) -> dict[str, float]:
        return {name: float(value / count) for name, (value, count) in self._sums.items() if count}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the history, as tensors where it grows with the steps, and the state of the random numbers."""
        checkpoint["resnas.history"] = {
            **{name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in _HISTORIES},
            "validation_metrics": self.validation_metrics,
            "logged": self.logged,
            "random_state": _random_state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up the history."""
        history = checkpoint["resnas.history"]
        for name in _HISTORIES:
            setattr(self, name, history[name].tolist())
        self.validation_metrics = history["validation_metrics"]
        self.logged = history["logged"]
        self._random_state = history["random_state"]

    def on_train_start(self) -> None:
        """Go on with the random numbers of the interrupted trial."""
        if "cpu" in self._random_state:
            torch.set_rng_state(self._random_state["cpu"])
        if "cuda" in self._random_state and torch.cuda.is_available():
            torch.cuda.set_rng_state(self._random_state["cuda"])

    def log_again(self) -> None:
        """Tell the loggers of a trial that goes on what those of the interrupted one were told."""
        for step, metrics in self.logged:
            for logger in self.loggers:
                logger.log_metrics(metrics, step=step)

    def _write(self, metrics: dict[str, float]) -> None:
        self.logged.append((self.global_step, metrics))
        for logger in self.loggers:
            logger.log_metrics(metrics, step=self.global_step)


def _random_state() -> dict[str, Tensor]:
    cuda = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def parameter_groups(model: Model, training: Training) -> list[dict[str, Any]]:
    """Return three groups: matrices (decayed), norms and positions (not decayed), mixing parameters (own rate, not
    decayed)."""
    mixing = {id(parameter) for parameter in model.mixing_parameters()}
    plain = [
        parameter for module in model.modules() if isinstance(module, RMSNorm) for parameter in module.parameters()
    ]
    if model.positions is not None:
        plain += list(model.positions.parameters())
    taken = mixing | {id(parameter) for parameter in plain}
    rate = training.learning_rate
    groups = [
        {
            "params": [p for p in model.parameters() if id(p) not in taken],
            "lr": rate,
            "weight_decay": training.weight_decay,
        },
        {"params": plain, "lr": rate, "weight_decay": 0.0},
        {
            "params": [p for p in model.mixing_parameters() if p.numel()],
            "lr": rate * training.mixing_lr_multiplier,
            "weight_decay": 0.0,
        },
    ]
    return [group for group in groups if group["params"]]


def learning_rate_share(step: int, steps: int, warmup_share: float) -> float:
    """Return the share of the peak learning rate at a step: linear warm-up, then a cosine to
    `FINAL_LEARNING_RATE_SHARE`."""
    warmup_steps = round(warmup_share * steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    return FINAL_LEARNING_RATE_SHARE + (1 - FINAL_LEARNING_RATE_SHARE) * (1 + math.cos(math.pi * progress)) / 2
