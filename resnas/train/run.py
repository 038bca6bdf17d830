"""One trial from its spec to its result: data, model, Lightning trainer, dilution, files in the trial's folder."""

from __future__ import annotations

import math
import platform
import signal
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from resnas import cost
from resnas.architecture import Architecture
from resnas.dilution import measure
from resnas.errors import InputError, ResnasError
from resnas.model import Model
from resnas.record import make_named
from resnas.study import Budget
from resnas.tasks import TASKS
from resnas.tasks.task import Task, TaskData
from resnas.train import checkpoint
from resnas.train.module import TrialModule
from resnas.train.stability import loss_spikes
from resnas.train.trainer import BatchStream, make_trainer
from resnas.trial import TrialResult, TrialSpec

Report = Callable[[int, dict[str, float]], bool]
"""Called after each validation with the step and its metrics; True asks the trial to stop (pruning)."""
Watch = Callable[[int, float], None]
"""Called before each batch, of validations too, with the steps done and the latest training loss (NaN before the first
step); what it raises ends the trial."""
MEASURED_EXAMPLES = 16
"""Of the validation split, the same for every trial."""


class Pruned(Exception):
    """The search asked the trial to stop."""


class _Progress(Callback):
    """Reports validations to the search, measures dilution at the steps asked for, and takes the time.

    What it has gathered goes into the checkpoints; a trial that goes on from one reports again what the interrupted one
    has reported.
    """

    def __init__(
        self, data: TaskData, budget: Budget, report: Report, watch: Watch | None, process_started_s: float
    ) -> None:
        self._report = report
        self._watch = watch
        self._last_step = budget.steps
        self._measure_steps = {max(1, round(share * budget.steps)) for share in budget.measure_at}
        self._batch = data.batches("validation", MEASURED_EXAMPLES, limit=1)[0]
        self._process_started_s = process_started_s
        self._fit_started = time.perf_counter()
        self._earlier_train_time_s = 0.0
        self._reports: list[tuple[int, dict[str, float]]] = []
        self.measurements: list[dict[str, Any]] = []
        self.start_time_s: float | None = None

    @property
    def train_time_s(self) -> float:
        """Wall time of training and validation so far, that of the interrupted trial included."""
        return self._earlier_train_time_s + time.perf_counter() - self._fit_started

    def state_dict(self) -> dict[str, Any]:
        """Return what a trial that goes on must know."""
        return {
            "reports": self._reports,
            "measurements": self.measurements,
            "train_time_s": self.train_time_s,
            "start_time_s": self.start_time_s,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what the interrupted trial has gathered."""
        self._reports = state_dict["reports"]
        self.measurements = state_dict["measurements"]
        self._earlier_train_time_s = state_dict["train_time_s"]
        self.start_time_s = state_dict["start_time_s"]

    def on_fit_start(self, trainer: Trainer, module: Any) -> None:
        """Log and report again; an answer counts only if the model is still as it was when that was reported."""
        module.log_again()
        for step, metrics in self._reports:
            prune = self._report(step, metrics)
        if self._reports and prune:
            raise Pruned(f"pruned at step {step}")

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if self.start_time_s is None:
            self.start_time_s = time.time() - self._process_started_s
        self._tell(trainer, module)

    def on_validation_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        self._tell(trainer, module)

    def on_test_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        self._tell(trainer, module)

    def _tell(self, trainer: Trainer, module: Any) -> None:
        if self._watch is not None:
            self._watch(trainer.global_step, module.losses[-1] if module.losses else math.nan)

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning would wait for the end of a step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if not module.stepped:  # gradients are still being accumulated
            return
        if trainer.global_step == self._last_step:
            trainer.should_stop = True  # makes Lightning validate once more, whatever the interval
        if trainer.global_step in self._measure_steps:
            inputs, targets = self._batch
            measured = measure(module.model, (inputs.to(module.device), targets.to(module.device)))
            self.measurements.append({"step": trainer.global_step, **asdict(measured)})

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        self._reports.append((trainer.global_step, module.validation_metrics))
        if self._report(*self._reports[-1]):
            raise Pruned(f"pruned at step {trainer.global_step}")


def run_trial(
    spec: TrialSpec, report: Report, process_started_s: float | None = None, watch: Watch | None = None
) -> TrialResult:
    """Train, validate and measure one architecture.

    Args:
        spec: what to train, on what, with which seeds.
        report: called after each validation; a trial that goes on from a checkpoint reports the earlier ones again.
        process_started_s: `time.time()` when the trial's process began, for the metric `start_time_s`.
        watch: called before each batch.

    Raises:
        resnas.errors.TrialFailed: the loss is not finite.
        resnas.errors.InputError: the data cannot be used.
    """
    started_s = time.time() if process_started_s is None else process_started_s
    torch.set_num_threads(spec.threads)
    architecture, budget = Architecture(**spec.architecture), Budget(**spec.budget)
    task = make_named(spec.task, TASKS, Task, "task")
    data, shape = task.load(), task.shape()
    seed_everything(spec.seed, verbose=False)
    module = TrialModule(architecture, shape, data, budget.steps)
    announced = _check_parameters(module.model, cost.parameters(architecture, shape))
    identity = checkpoint.identity(spec, data.sha256)
    resumed = checkpoint.take_over(spec.checkpoint, Path(spec.folder) / "checkpoints", identity)
    progress = _Progress(data, budget, report, watch, started_s)
    trainer = make_trainer(Path(spec.folder), budget, progress, identity, spec.trainer)
    state = _train_and_test(spec, budget, data, module, trainer, resumed)
    metrics = {
        **module.validation_metrics,
        **module.test_metrics,
        **(progress.measurements[-1]["metrics"] if progress.measurements else {}),
        **_stability(module),
        "parameters": announced,
        "flops": cost.flops(architecture, shape),
        "step_time_s": statistics.median(module.step_times_s),
        "train_time_s": progress.train_time_s,
        "start_time_s": progress.start_time_s,
    }
    return TrialResult(
        **state,
        metrics=metrics,
        data_sha256=data.sha256,
        versions=versions(),
        measurements=progress.measurements,
    )


def _train_and_test(
    spec: TrialSpec,
    budget: Budget,
    data: TaskData,
    module: TrialModule,
    trainer: Trainer,
    resumed: checkpoint.Resumed | None,
) -> dict[str, Any]:
    """Train with validations, test where the trial is to be; return how it has ended, as fields of a TrialResult.

    Raises:
        InputError: an option of Lightning's Trainer left no time for a step.
    """
    train = _train_batches(spec, budget, data, trainer, resumed)
    validation = data.batches("validation", budget.batch_size, limit=budget.validation_batches)
    start = resumed.path if resumed else None
    try:
        trainer.fit(module, train, BatchStream(lambda: iter(validation)), ckpt_path=start, weights_only=True)
        if not module.step_times_s:
            raise InputError("Lightning's Trainer ended before the first training step; give it more time")
        if trainer.global_step < budget.steps:  # only an option of Lightning's Trainer ends it early
            return {"state": "pruned", "reason": f"stopped at step {trainer.global_step} of {budget.steps}"}
        if spec.test:
            test = data.batches("test", budget.batch_size)
            trainer.test(module, BatchStream(lambda: iter(test)), verbose=False)
    except Pruned as pruned:
        return {"state": "pruned", "reason": str(pruned)}
    except BaseException:
        _end_other_processes(trainer)
        raise
    return {"state": "complete"}


def _train_batches(
    spec: TrialSpec, budget: Budget, data: TaskData, trainer: Trainer, resumed: checkpoint.Resumed | None
) -> BatchStream:
    """Return the training batches of this process: with several devices each takes its turn, and those before a
    checkpoint are left out."""
    devices = trainer.world_size
    seen = resumed.step * trainer.accumulate_grad_batches * devices if resumed else 0
    return BatchStream(
        lambda: data.train_batches(budget.batch_size, spec.data_seed), skipped=seen + trainer.global_rank, every=devices
    )


def _end_other_processes(trainer: Trainer) -> None:
    """End the processes of other devices, which would wait for this one."""
    end = getattr(trainer.strategy.launcher, "kill", None)
    if end is not None:
        end(signal.SIGTERM)


def _check_parameters(model: Model, announced: int) -> int:
    """Return the number of parameters; constraints and tables rely on what the topology announces."""
    found = sum(parameter.numel() for parameter in model.parameters())
    if found != announced:
        name = type(model.architecture.residual).__name__
        more = f"{found - announced} more" if found > announced else f"{announced - found} fewer"
        raise ResnasError(f"{name} has {more} parameters than {name}.mixing_parameters() says; make them agree")
    return found


def _stability(module: TrialModule) -> dict[str, float]:
    return {
        "gradient_norm": statistics.median(module.gradient_norms),
        "gradient_norm_max": max(module.gradient_norms),
        "loss_spikes": loss_spikes(module.losses),
        "train_loss": statistics.mean(module.losses[-20:]),
    }


def inspect_task(task: dict[str, Any]) -> dict[str, Any]:
    """Load a task's data once, before any trial: its hash, what to compare metrics with, and what figures depend on.

    Raises:
        resnas.errors.InputError: the data cannot be used.
    """
    made = make_named(task, TASKS, Task, "task")
    return {"data_sha256": made.load().sha256, "baselines": made.baselines(), "versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions and the hardware that figures depend on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "lightning": lightning.__version__,
        "device": device,
    }
