"""The study: which space is searched on which task, with what budget, for which objectives and how."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, SerializeAsAny, create_model

from resnas.by_name import empty_mapping, find_classes, named_type
from resnas.errors import InputError
from resnas.fingerprint import changes, derive_seed
from resnas.placement import Placement
from resnas.problems import Problem, check, given, unknown, validated
from resnas.record import Count, CountOrZero, NonNegative, Positive, Record, Share, class_name
from resnas.results import METRICS, Direction
from resnas.space import SearchSpace
from resnas.space.model import FormatVersion
from resnas.tasks.task import Task
from resnas.yaml_file import Document, load_yaml, set_dotted

__all__ = ["Budget", "Ranking", "Search", "Study", "changes", "derive_seed", "json_schema"]

_SPACE_KEYS = ("architecture", "training", "constraints")


def _names(value: Any) -> Any:
    """Let one name stand for a list of one; refuse what is no list of different names."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a name or a list of names, not {given(value)}")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice")
    return names


def _directions(value: Any) -> Any:
    """Let names stand for a mapping whose directions are those of the metrics."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("must name at least one metric")
        return value
    return dict.fromkeys(_names(value))


def _rising_to_one(shares: list[float]) -> list[float]:
    if not shares or shares[0] <= 0 or shares[-1] != 1 or sorted(set(shares)) != shares:
        raise ValueError(f"must be shares above 0 that rise and end with 1.0, not {given(shares)}")
    return shares


class Budget(Record):
    """What every trial may use, the same for all."""

    steps: Count = 300
    """Training steps."""
    batch_size: Count = 16
    """Examples per step."""
    validations: Count = 4
    """How many times during training the validation metrics are taken (at most), the last after the last step."""
    validation_batches: Count = 16
    """Fixed batches of the validation split that are used."""
    measure_at: Annotated[list[Share], AfterValidator(_rising_to_one)] = Field([0.25, 0.5, 1.0])
    """Shares of the steps at which dilution is measured; the last is 1.0."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """How matrices are multiplied (bfloat16 by autocast; the stream stays in float32): auto is bfloat16 on a GPU that
    has it, float32 on a CPU, where bfloat16 pays from a width of about 128 if the processor multiplies it natively."""


class Search(Placement):
    """How architectures are chosen and trials are run."""

    sampler: Literal["tpe", "random", "grid", "nsga2"] = "tpe"
    """How the next architecture is chosen."""
    pruner: Literal["none", "asha", "median"] = "none"
    """How trials that look bad are stopped early; only with one objective."""
    n_trials: Count = 60
    """Trials of the study in all, those of earlier runs included."""
    replicates: Count = 1
    """Seeds per architecture."""
    duplicates: Literal["replicate", "redraw"] = "replicate"
    """What becomes of a proposal whose architecture has its seeds already: a further seed, or another draw."""
    random_share: Share = 0.4
    """Share of the trials, the first ones, that are drawn at random, because adaptive sampling biases a ranking."""
    seed: CountOrZero = 0
    """All other seeds derive from this one."""
    trial_timeout_s: Positive = 3600.0
    """Seconds after which a trial is ended."""
    timeout_s: Positive | None = None
    """Seconds after which a run of the search ends, trials under way included; null is no limit."""
    memory_limit_gib: Positive | None = None
    """Most memory of one trial in GiB, its child processes included; null is no limit."""
    retries: CountOrZero = 1
    """How often a trial is run again that ended for a reason outside it (killed by a signal, its node lost)."""
    max_failures: Count = 8
    """So many failed trials in a row end the search."""
    max_failure_share: Share = 0.5
    """A larger share of failed trials, of at least twice `max_failures`, ends the search."""
    keep_checkpoints: CountOrZero = 10
    """Trials, the best ones, whose checkpoints are kept; those of trials under way are kept as well."""
    min_free_gib: NonNegative = 1.0
    """Free disk space in GiB below which the search stops before the disk is full."""


class Ranking(Record):
    """What the properties of architectures are ranked by."""

    targets: Annotated[list[str], BeforeValidator(_names, json_schema_input_type=str | list[str])] = Field(
        ["dilution", "val_loss"]
    )
    """Metrics, each with a ranking of its own."""


class StudyFields(Record):
    """Everything in a study file but its task."""

    resnas: FormatVersion = Field(1, validate_default=False)
    """Version of the file format."""
    space: str
    """Search space, a path relative to this file."""
    budget: Annotated[Budget, BeforeValidator(empty_mapping)] = Budget()
    """What every trial may use, the same for all."""
    objectives: Annotated[
        dict[str, Direction | None],
        BeforeValidator(_directions, json_schema_input_type=str | list[str] | dict[str, Direction]),
    ] = Field({"val_loss": "minimize"})
    """Metrics to search for: a name, a list of names, or {name: minimize or maximize}."""
    search: Annotated[Search, BeforeValidator(empty_mapping)] = Search()
    """How architectures are chosen and trials are run."""
    ranking: Annotated[Ranking, BeforeValidator(empty_mapping)] = Ranking()
    """What the properties of architectures are ranked by."""
    storage: str | None = None
    """Optuna storage URL; null is an SQLite file in the results folder."""


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

    def fingerprint(self) -> dict[str, Any]:
        """Return all whose change would make old and new trials incomparable, as plain nested values."""
        return self.search_space.to_dict() | {
            "task": {self.task_name: self.task.model_dump(mode="json")},
            "budget": self.budget.model_dump(mode="json"),
            "objectives": dict(self.objectives),
            "search": {"seed": self.search.seed},
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
