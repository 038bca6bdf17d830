"""The command `train`: one architecture, in this process, under a progress bar, into a folder that it can go on in."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from resnas.allocator import keep_freed_memory
from resnas.architecture import Architecture
from resnas.cli.tables import make_console, print_rows, shown
from resnas.errors import InputError
from resnas.export.choice import chosen
from resnas.export.trained import RESULT, read_record, write_record
from resnas.files import write_json, write_yaml
from resnas.fingerprint import changes
from resnas.lock import locked
from resnas.passwords import without_passwords
from resnas.results import unit_of
from resnas.space import changed, load_architecture, plain
from resnas.study import Study
from resnas.trial import TrialResult, TrialSpec
from resnas.yaml_file import parse_yaml

INTERRUPTED = 130
STANDARD_ERROR = 2
STOPPING = "Stopping before the next batch …\n"
log = logging.getLogger("resnas.cli.training")


class Stopped(BaseException):
    """Ctrl-C; not KeyboardInterrupt, which Lightning would turn into another exit code."""


class TrainingView:
    """A progress bar with the losses, and a line per validation; use as a context manager."""

    def __init__(self, steps: int, console: Console, is_asked_to_stop: Callable[[], bool]) -> None:
        self._steps = steps
        self._console = console
        self._is_asked_to_stop = is_asked_to_stop
        self._validated = ""
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[losses]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("train", total=steps, losses="")

    def __enter__(self) -> TrainingView:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def report(self, step: int, metrics: dict[str, float]) -> bool:
        """Show the metrics of a validation; never ask for an end."""
        values = ", ".join(f"{name} {shown(value)}" for name, value in metrics.items())
        self._validated = f"val_loss {shown(metrics['val_loss'])}"
        self._console.print(f"step {step}/{self._steps}: {values}", highlight=False, soft_wrap=True)
        log.info("step %d: %s", step, values)
        return False

    def watch(self, step: int, train_loss: float) -> None:
        """Show where the training is. Raises Stopped after Ctrl-C."""
        if self._is_asked_to_stop():
            raise Stopped
        self._bar.update(self._task, completed=step, losses=f"train_loss {shown(train_loss)} {self._validated}")


def run_train(
    path: Path,
    wanted: str | None,
    steps: int | None,
    seed: int,
    trainer: list[str],
    output: Path | None,
    overrides: list[str],
    format: str,
) -> None:
    """Train, or go on, or show what was trained before."""
    inner = [one for one in overrides if one.partition("=")[0].split(".")[0].strip() in ("architecture", "training")]
    outer = [one for one in overrides if one not in inner]
    study = Study.load(path, [*outer, *([f"budget.steps={steps}"] if steps else [])])
    architecture = _architecture(study, wanted, inner)
    name = f"{architecture.key}-{study.budget.steps}steps-seed{seed}"
    folder = output or study.results_folder / "trained" / name
    spec = _spec(study, architecture, seed, _trainer_options(trainer), folder)
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"  # Lightning starts the command again for each further device
    console = Console(stderr=True, quiet=not is_first)
    result = _known_result(folder, spec)
    if result is not None:
        console.print(f"Trained already, in {escape(str(folder))}:", highlight=False, soft_wrap=True)
    else:
        what = (
            f"{architecture.label} ({architecture.key}): {study.budget.steps} steps on {study.task_name}, seed {seed}"
        )
        console.print(f"[bold]{escape(what)}[/bold]; results in {escape(str(folder))}", highlight=False, soft_wrap=True)
        result = _trained_alone(spec, study, architecture, console) if is_first else _trained(spec, console, is_first)
        if result is None:
            again = without_passwords(shlex.join(["python", "cli.py", *sys.argv[1:]]))
            console.print(f"Stopped. Go on with: [bold]{escape(again)}[/bold]", highlight=False, soft_wrap=True)
            raise typer.Exit(INTERRUPTED)
        if result.state != "complete":
            console.print(f"{result.reason}. Give more time to go on.", highlight=False)
            return
    if is_first:
        _show(result, folder, format)


def _architecture(study: Study, wanted: str | None, overrides: list[str]) -> Architecture:
    """Return what is to be trained. Raises InputError where it cannot be found or built."""
    if wanted is not None and (wanted.endswith((".yaml", ".yml")) or Path(wanted).is_file()):
        architecture = load_architecture(wanted, overrides)
    else:
        from resnas.search import load_trials

        architecture = changed(chosen(study, load_trials(study), wanted), overrides)
    if reason := architecture.infeasible():
        raise InputError(f"this architecture cannot be built: {reason}")
    return architecture


def _trainer_options(given: list[str]) -> dict[str, Any]:
    """Return the options of Lightning's Trainer, values read as YAML. Raises InputError."""
    options: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not text.strip():
            raise InputError(f"--trainer {one}: must be key=value, with null for no value")
        options[name.strip()] = parse_yaml(f"value: {text}", f"--trainer {one}").values["value"]
    if options:
        from resnas.train.trainer import check_options

        check_options(options)
    return options


def _spec(study: Study, architecture: Architecture, seed: int, trainer: dict[str, Any], folder: Path) -> TrialSpec:
    """Return what the trial is told; batches depend on the seed alone, so that architectures are paired."""
    last = folder / "checkpoints" / "last.ckpt"
    return TrialSpec(
        architecture=architecture.model_dump(mode="json"),
        task={study.task_name: study.task.model_dump(mode="json")},
        budget=study.budget.model_dump(mode="json"),
        seed=seed,
        data_seed=seed,
        folder=str(folder),
        threads=study.search.threads_per_trial,
        checkpoint=str(last) if last.is_file() else None,
        test=True,
        trainer=trainer,
    )


def _known_result(folder: Path, spec: TrialSpec) -> TrialResult | None:
    """Return the result that lies in the folder; None where there is none yet.

    Raises:
        InputError: something else was trained there.
    """
    record = read_record(folder)
    if record is None or (record.result is None and spec.checkpoint is None):
        return None
    if different := changes(_settings(record.spec), _settings(spec)):
        raise InputError(
            f"{folder}: was trained with other settings: {'; '.join(different)}. "
            "Undo the change, or give --output for a folder of its own"
        )
    return record.result


def _settings(spec: TrialSpec) -> dict[str, Any]:
    """Return what a result depends on, as a file gives it back."""
    values = {name: getattr(spec, name) for name in ("architecture", "task", "budget", "seed", "data_seed")}
    values |= {"trainer": spec.lasting_options} if spec.lasting_options else {}
    read: dict[str, Any] = json.loads(json.dumps(values))
    return read


def _trained_alone(spec: TrialSpec, study: Study, architecture: Architecture, console: Console) -> TrialResult | None:
    """Train while no other command does so in the folder, and keep the result there.

    Raises:
        InputError: the folder cannot be written.
        ResnasError: another process trains in it.
    """
    folder = Path(spec.folder)
    with locked(folder / "lock", f"another train is running in {folder}"):
        write_record(folder, spec, study)
        write_yaml(folder / "architecture.yaml", plain(architecture))
        result = _trained(spec, console, is_first=True)
        if result is not None and result.state == "complete":
            write_json(folder / RESULT, result.to_dict() | {"key": architecture.key, "seed": spec.seed})
    return result


def _trained(spec: TrialSpec, console: Console, is_first: bool) -> TrialResult | None:
    """Train under a progress bar; return None where Ctrl-C has ended it."""
    try:
        with _logged(Path(spec.folder) / "log.txt", is_first), _stopping() as is_asked_to_stop:
            from resnas.train import run_trial

            keep_freed_memory()
            with TrainingView(spec.budget["steps"], console, is_asked_to_stop) as view:
                result = run_trial(spec, view.report, watch=view.watch)
            log.info("%s", result.reason or "complete")
            return result
    except (Stopped, KeyboardInterrupt):
        return None


@contextlib.contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether to stop: the first Ctrl-C asks for it, one after it stops at once."""
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise Stopped
        asked = True
        os.write(STANDARD_ERROR, STOPPING.encode())  # not print: a handler must not import, and rich may

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _logged(path: Path, is_first: bool) -> Iterator[None]:
    """Keep messages in a file, warnings and how it ended included; show our own warnings as well."""
    if not is_first:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    file, screen = logging.FileHandler(path, encoding="utf-8"), logging.StreamHandler()
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    screen.setLevel(logging.WARNING)
    ours, loggers = logging.getLogger("resnas"), [logging.getLogger(name) for name in ("resnas", "lightning.pytorch")]
    ours.setLevel(logging.INFO)
    ours.addHandler(screen)
    for one in loggers:
        one.addHandler(file)
    try:
        yield
    except BaseException as error:
        log.log(logging.INFO, "ended by %s: %s", type(error).__name__, error)
        raise
    finally:
        ours.removeHandler(screen)
        for one in loggers:
            one.removeHandler(file)
        file.close()


def _show(result: TrialResult, folder: Path, format: str) -> None:
    """Print the metrics."""
    rows = [{"metric": name, "value": value, "unit": unit_of(name)} for name, value in result.metrics.items()]
    print_rows(rows, format)
    if format == "table":
        command = shlex.join(["python", "cli.py", "export", "--trained", str(folder)])
        make_console().print(f"Export: [bold]{escape(command)}[/bold]", highlight=False, soft_wrap=True)
