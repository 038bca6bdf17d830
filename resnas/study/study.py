"""The study: which space is searched on which task, with what budget, for which objectives and how."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, InstanceOf, SerializeAsAny, create_model

from resnas.by_name import find_classes, named_type
from resnas.errors import InputError
from resnas.problems import Problem, check, unknown, validated
from resnas.record import class_name
from resnas.results import METRICS, Direction
from resnas.space import SearchSpace
from resnas.space.model import FormatVersion
from resnas.study.fields import StudyFields
from resnas.tasks.task import Task
from resnas.yaml_file import Document, load_yaml, set_dotted

_SPACE_KEYS = ("architecture", "training", "constraints")


class Study(StudyFields):
    """A validated study with its task and its space; `objectives` has a direction for every metric."""

    task: SerializeAsAny[InstanceOf[Task]]
    path: Path
    """The study file as the user named it."""
    search_space: InstanceOf[SearchSpace]

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Study:
        """Read a study file and its space.

        Args:
            path: the YAML file.
            overrides: `dotted.key=value`; those of architecture, training and constraints go to the space.

        Raises:
            InputError: something cannot be used as given; the message has the place of the first problem.
        """
        document = load_yaml(path)
        _refuse_a_space(document, Path(path))
        inner = [override for override in overrides if override.partition("=")[0].split(".")[0].strip() in _SPACE_KEYS]
        for override in overrides:
            if override not in inner:
                document = set_dotted(document, override)
        values, task = _read(document)
        space_path = _beside(Path(path), values["space"])
        if not space_path.is_file():
            check(
                document,
                [Problem(("space",), f"there is no file {space_path}; give a path relative to the study file")],
            )
        search_space = SearchSpace.load(space_path, inner)
        directions = known_metrics(task)
        problems = [*_unknown_metrics(values, directions), *_impossible(values, search_space, task)]
        check(document, problems)
        objectives = {name: given or directions[name] for name, given in values["objectives"].items()}
        return cls(**values | {"objectives": objectives}, task=task, path=Path(path), search_space=search_space)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def results_folder(self) -> Path:
        """The folder, beside the file, that results lie in."""
        return self.path.parent / self.name

    @property
    def directions(self) -> dict[str, Direction]:
        """The objectives, and which way is better; `load` has filled in what the file leaves open."""
        return {name: direction or "minimize" for name, direction in self.objectives.items()}

    @property
    def task_name(self) -> str:
        """The name of the task in YAML."""
        return class_name(type(self.task), task_registry())

    def excesses(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return how far a trial is beyond each limit of the study; at most 0 where it keeps to it."""
        each = (bound.excesses(name, metrics[name]) for name, bound in self.limits.items())
        return {limit: excess for part in each for limit, excess in part.items()}

    def fingerprint(self) -> dict[str, Any]:
        """Return all whose change would make old and new trials incomparable, as plain nested values."""
        limits = {name: bound.model_dump(exclude_none=True) for name, bound in self.limits.items()}
        return self.search_space.to_dict() | {
            "task": {self.task_name: self.task.model_dump(mode="json")},
            "budget": self.budget.model_dump(mode="json"),
            "objectives": dict(self.objectives),
            "search": {"seed": self.search.seed},
            **({"limits": limits} if limits else {}),
        }


def _beside(path: Path, other: str) -> Path:
    """Return the path of a file that is named relative to the file `path`, without `..` where that is the same."""
    joined = path.parent / other
    short = Path(os.path.normpath(joined))
    return short if short.is_file() else joined


def task_registry() -> dict[str, type[Task]]:
    """Return the tasks that are known by name."""
    from resnas.tasks import TASKS

    return TASKS


def known_metrics(task: Task) -> dict[str, Direction]:
    """Return the metrics of every trial of a task, and which way is better."""
    return {name: metric.direction for name, metric in METRICS.items()} | dict(task.metric_directions)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, for editors."""
    return _study_model(tuple(task_registry().items())).model_json_schema()


def _options(task: type[Task]) -> type[Task]:
    """Return a model of its own for the options of a task, so that the task class itself is left as it is."""
    return create_model(task.__name__, __base__=task, __doc__=task.__doc__)


@functools.lru_cache(maxsize=16)
def _study_model(tasks: tuple[tuple[str, type[Task]], ...]) -> type[StudyFields]:
    """Return the model of a study file in which `tasks` are known."""
    description = "What is learned."
    version = Field(description="Version of the file format.")
    task = named_type(dict(tasks), _options, "task")
    return create_model(
        "StudyFile", __base__=StudyFields, resnas=(FormatVersion, version), task=(task, Field(description=description))
    )


def _read(document: Document) -> tuple[dict[str, Any], Task]:
    """Return the fields of a study document and its task. Raises InputError with the place of the first problem."""
    tasks, problems = find_classes(document.values.get("task"), ("task",), task_registry(), Task, "task")
    model = _study_model(tuple(tasks.items()))
    read: Any = validated(document, model, problems)
    options = {name: getattr(read.task.options, name) for name in read.task.options.model_fields_set}
    return {name: getattr(read, name) for name in StudyFields.model_fields}, tasks[read.task.name](**options)


def _refuse_a_space(document: Document, path: Path) -> None:
    """Raise InputError where the file is a search space."""
    found = [key for key in _SPACE_KEYS if key in document.values]
    if found and "space" not in document.values:
        raise InputError(
            f"{document.where((found[0],))}: {found[0]}: this is a search space, not a study; "
            f"a study names it as 'space: {path.name}', a path relative to the study file"
        )


def _unknown_metrics(values: dict[str, Any], directions: dict[str, Direction]) -> list[Problem]:
    """Return the objectives and targets that no trial of this task has."""
    named = [(("objectives", name), name) for name in values["objectives"]]
    named += [(("limits", name), name) for name in values["limits"]]
    named += [(("ranking", "targets"), name) for name in values["ranking"].targets]
    return [Problem(place, unknown(name, directions, "metric")) for place, name in named if name not in directions]


def _impossible(values: dict[str, Any], space: SearchSpace, task: Task) -> list[Problem]:
    """Return what is wrong between fields that are each right."""
    search, objectives, budget = values["search"], values["objectives"], values["budget"]
    known_at_validation = ["val_loss", *task.metric_directions]
    problems = []
    if search.pruner != "none" and len(objectives) > 1:
        sentence = f"{search.pruner!r} needs exactly one objective, not {len(objectives)} ({', '.join(objectives)})"
        problems.append(Problem(("search", "pruner"), f"{sentence}; set it to none or name one objective"))
    elif search.pruner != "none" and (unseen := objectives.keys() - known_at_validation):
        sentence = (
            f"{search.pruner!r} needs an objective that is known during training ({', '.join(known_at_validation)})"
        )
        problems.append(Problem(("search", "pruner"), f"{sentence}, not {unseen.pop()}; set it to none"))
    if search.sampler == "grid" and (continuous := space.continuous()):
        sentence = f"'grid' needs a discrete space, but {continuous[0]} is a continuous range"
        problems.append(Problem(("search", "sampler"), f"{sentence}; give it a list or a step, or use another sampler"))
    if budget.validations > budget.steps:
        sentence = f"{budget.validations} validations do not fit into {budget.steps} steps"
        problems.append(Problem(("budget", "validations"), sentence))
    return problems
