"""The command `check`: what a file says, how large its space is, what a few of its architectures cost. Loads no
torch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from resnas import cost
from resnas.architecture import Architecture
from resnas.cli.tables import clock, make_console, print_rows
from resnas.errors import InputError
from resnas.space import SearchSpace
from resnas.space.dimensions import RandomTrial
from resnas.study import Budget, Study
from resnas.tasks import TASKS
from resnas.tasks.task import Task, TaskShape
from resnas.yaml_file import load_yaml

PROBED = 200
"""Random draws that tell how much of a space is feasible."""


def run_check(path: Path, examples: int, seed: int, overrides: list[str], format: str) -> None:
    """Check a space or a study and print what it holds."""
    study = None if _is_space(path) else Study.load(path, overrides)
    space = study.search_space if study else SearchSpace.load(path, overrides)
    task: Task = study.task if study else TASKS["text"]()
    shape = task.shape()
    random = Random(seed)
    drawn = [_drawn(space, random, shape) for _ in range(max(PROBED, examples))]
    feasible = [one for one in drawn if isinstance(one, Architecture)]
    rows = [_row(architecture, shape, study.budget if study else Budget()) for architecture in feasible[:examples]]
    if format != "table":
        print_rows(rows, format)
        return
    console = make_console()
    console.print(f"[bold]{path}[/bold]: {'a study' if study else 'a search space'}, no errors")
    for line in _facts(space, study, drawn, feasible, shape):
        console.print(line, highlight=False)
    print_rows(rows, format, "Sampled architectures")


def _is_space(path: Path) -> bool:
    values = load_yaml(path).values
    return "space" not in values and any(key in values for key in ("architecture", "training", "constraints"))


def _drawn(space: SearchSpace, random: Random, shape: TaskShape) -> Architecture | str:
    """Return an architecture at random, or why it is infeasible."""
    try:
        architecture = space.sample(RandomTrial(random))
    except InputError as refused:  # by the validator of a user's topology
        return str(refused)
    return space.infeasible(architecture, shape) or architecture


def _facts(
    space: SearchSpace,
    study: Study | None,
    drawn: Sequence[Architecture | str],
    feasible: Sequence[Architecture],
    shape: TaskShape,
) -> list[str]:
    """Return what there is to say about size, feasibility and time."""
    count, continuous = space.count(), space.continuous()
    size = f"{count:,} assignments" if count is not None else f"continuous in {', '.join(continuous)}"
    lines = [f"Space: {len(space.parameters)} parameters that vary, {size}"]
    reasons = [one for one in drawn if isinstance(one, str)]
    if reasons:
        lines.append(f"Infeasible: {len(reasons) / len(drawn):.0%} of {len(drawn)} random draws, such as: {reasons[0]}")
    if space.baseline() is None:
        lines.append("Baseline: none, the space has no `fixed` residual to compare with")
    if study is None:
        lines.append("Costs below are for the text task; a study may name another")
        return lines
    workers = study.search.workers or max(1, (os.cpu_count() or 1) // study.search.threads_per_trial)
    mean_s = sum(_seconds(one, shape, study.budget) for one in feasible) / max(1, len(feasible))
    search, objectives = study.search, ", ".join(study.objectives)
    expected = clock(search.n_trials * mean_s / workers)
    lines.append(f"Study: {search.n_trials} trials, {search.sampler}, objectives {objectives}, {workers} at a time")
    lines.append(f"Expected time: about {expected} on CPU cores (a rough guess from FLOPs)")
    return lines


def _row(architecture: Architecture, shape: TaskShape, budget: Budget) -> dict[str, Any]:
    training = architecture.training
    return {
        "architecture": architecture.label,
        "depth": architecture.depth,
        "width": architecture.width,
        "learning_rate": training.learning_rate,
        "parameters": cost.parameters(architecture, shape),
        "flops": cost.flops(architecture, shape),
        "time_s": round(_seconds(architecture, shape, budget), 1),
    }


def _seconds(architecture: Architecture, shape: TaskShape, budget: Budget) -> float:
    return cost.training_time_s(architecture, shape, budget.steps, budget.batch_size)


def print_schema(kind: str) -> None:
    """Print the JSON Schema of a space or a study."""
    from resnas import study

    print(json.dumps(SearchSpace.json_schema() if kind == "space" else study.json_schema(), indent=2))
