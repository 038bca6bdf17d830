"""The search space: which architectures a search may choose, read from YAML, sampled, listed and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ValidationError

from resnas import cost
from resnas.architecture import Architecture, Stack, Training
from resnas.by_name import find_classes
from resnas.errors import InputError
from resnas.problems import Problem, check, validated
from resnas.residual import TOPOLOGIES, Fixed, Topology
from resnas.space.dimensions import Choices, Dimension, RandomTrial, TrialLike, Value
from resnas.space.model import FORMAT_VERSION, Constraints, dimensions, space_model
from resnas.tasks.task import TaskShape
from resnas.yaml_file import Document, load_yaml, set_dotted

RESIDUAL = "architecture.residual"
_STACKS_TO_TRY = 10_000
"""Stacks that are tried, when a space is loaded, until a feasible one is found."""


@dataclass(frozen=True)
class Variant:
    """A residual topology of the space and its options."""

    name: str
    """As in the YAML: a known name or `package.module:Class`."""
    topology: type[Topology]
    options: Mapping[str, Dimension]
    """By full dotted name."""


@dataclass(frozen=True)
class SearchSpace:
    """A validated space. A parameter is a field that varies, named by its dotted place in the YAML."""

    stack: Mapping[str, Dimension]
    """Fields of the stack, by full dotted name."""
    variants: tuple[Variant, ...]
    training: Mapping[str, Dimension]
    """Fields of the training, by full dotted name."""
    constraints: Constraints

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> SearchSpace:
        """Read a YAML file; each override is `dotted.key=value`. Raises InputError for the first problem."""
        document = load_yaml(path)
        for override in overrides:
            document = set_dotted(document, override)
        return cls.from_document(document)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SearchSpace:
        """Read what `to_dict` returns, or the same written by hand. Raises InputError."""
        return cls.from_document(Document("space", dict(values), {}, {}))

    @classmethod
    def from_document(cls, document: Document) -> SearchSpace:
        """Validate the values of a document. Raises InputError with the place of the first problem."""
        if {"space", "task"} & document.values.keys():
            raise InputError(
                f"{document.source}: is a study, not a search space; it names its space under the key 'space'"
            )
        architecture = document.values.get("architecture")
        residual = architecture.get("residual", "fixed") if isinstance(architecture, dict) else "fixed"
        topologies, problems = find_classes(
            residual, ("architecture", "residual"), TOPOLOGIES, Topology, "residual topology"
        )
        model = space_model(topologies)
        read: Any = validated(document, model, problems)
        prefix = "architecture."
        space = cls(
            stack={prefix + name: one for name, one in dimensions(read.architecture, Stack)},
            variants=_variants(read.architecture.residual, topologies),
            training={f"training.{name}": one for name, one in dimensions(read.training, Training)},
            constraints=read.constraints,
        )
        check(document, space._impossible())
        return space

    def _impossible(self) -> list[Problem]:
        """Return the problem that no stack can be built, if so; spaces too large to try them all are let pass."""
        values: list[Iterable[Value]] = [[one.middle] if one.count is None else one for one in self.stack.values()]
        names = [_last(name) for name in self.stack]
        reason = None
        for tried, combination in enumerate(_product(values)):
            reason = Stack(**dict(zip(names, combination, strict=True))).infeasible()
            if reason is None or tried >= _STACKS_TO_TRY:
                return []
        place = next((name for name in names if name in str(reason).split()), None)
        return [Problem(("architecture", *([place] if place else [])), f"no choice is feasible: {reason}")]

    def _pick(self, pick: Callable[[str, Dimension], Value]) -> Architecture:
        """Return the architecture of what `pick` returns for each field; of options, only the chosen variant's."""
        stack = {_last(name): pick(name, one) for name, one in self.stack.items()}
        chosen = pick(RESIDUAL, self._names)
        variant = next(variant for variant in self.variants if variant.name == chosen)
        options = {_last(name): pick(name, one) for name, one in variant.options.items()}
        training = {_last(name): pick(name, one) for name, one in self.training.items()}
        try:
            return Architecture(**stack, residual=variant.topology(**options), training=Training(**training))
        except ValidationError as error:
            raise InputError(f"{RESIDUAL}.{variant.name}: {error.errors()[0]['msg']}") from error

    @property
    def _names(self) -> Choices:
        return Choices(tuple(variant.name for variant in self.variants))

    def sample(self, trial: TrialLike) -> Architecture:
        """Ask an Optuna trial, or anything with its `suggest_` methods, for an architecture, perhaps infeasible."""
        return self._pick(lambda name, dimension: dimension.suggest(trial, name))

    def build(self, assignment: Mapping[str, Value]) -> Architecture:
        """Return the architecture of one value per active parameter.

        Raises:
            InputError: a parameter is missing, not active, or its value is not in the space.
        """
        used = set()

        def pick(name: str, dimension: Dimension) -> Value:
            if not dimension.varies:
                return dimension.middle
            if name not in assignment:
                raise InputError(f"{name}: has no value in {dict(assignment)}")
            used.add(name)
            try:
                return dimension.find(assignment[name])
            except ValueError as error:
                raise InputError(f"{name}: {error}") from None

        architecture = self._pick(pick)
        if unused := [name for name in assignment if name not in used]:
            raise InputError(f"{', '.join(unused)}: not a parameter of this space, or not with the other values given")
        return architecture

    def infeasible(self, architecture: Architecture, shape: TaskShape) -> str | None:
        """Return why an architecture cannot be built, or breaks which constraint, for a task of this shape; or None."""
        limits = [
            ("parameters", cost.parameters, self.constraints.max_parameters),
            ("FLOPs", cost.flops, self.constraints.max_flops),
        ]
        if reason := architecture.infeasible():
            return reason
        for noun, count, limit in limits:
            if limit is not None and (number := count(architecture, shape)) > limit:
                return f"{number:,} {noun}, more than max_{noun.lower()} {limit:,}"
        return None

    @property
    def parameters(self) -> dict[str, Dimension]:
        """All fields that vary, options of every variant included, in the order in which they are asked for."""
        options = {name: one for variant in self.variants for name, one in variant.options.items()}
        every = {**self.stack, RESIDUAL: self._names, **options, **self.training}
        return {name: one for name, one in every.items() if one.varies}

    def _active(self, variant: Variant) -> dict[str, Dimension]:
        """Return the parameters that have a value where `variant` is chosen; the variant itself is the one choice."""
        chosen: dict[str, Dimension] = {RESIDUAL: Choices((variant.name,))}
        varying = {name: one for name, one in {**self.stack, **variant.options, **self.training}.items() if one.varies}
        return {name: (chosen | varying)[name] for name in self.parameters if name in chosen or name in varying}

    def continuous(self) -> list[str]:
        """Return the names of the continuous parameters."""
        return [name for name, one in self.parameters.items() if one.count is None]

    def assignments(self) -> Iterator[dict[str, Value]]:
        """Yield every assignment, infeasible ones included. Raises InputError where a parameter is continuous."""
        if continuous := self.continuous():
            raise InputError(
                f"{continuous[0]}: is a continuous range, so its values cannot be listed; give a list or a step"
            )
        return self._assignments()

    def _assignments(self) -> Iterator[dict[str, Value]]:
        for variant in self.variants:
            active = self._active(variant)
            for values in _product(list(active.values())):
                yield dict(zip(active, values, strict=True))

    def enumerate(self) -> Iterator[Architecture]:
        """Yield the distinct architectures (by key) of a discrete space, each at its first assignment."""
        seen = set()
        for assignment in self.assignments():
            architecture = self.build(assignment)
            if architecture.key not in seen:
                seen.add(architecture.key)
                yield architecture

    def count(self) -> int | None:
        """Return the number of assignments in closed form; None where a parameter is continuous."""
        if self.continuous():
            return None
        return sum(math.prod(one.count or 0 for one in self._active(variant).values()) for variant in self.variants)

    def draw(self, random: Random) -> dict[str, Value]:
        """Return an assignment at random, every parameter on its own."""
        trial = RandomTrial(random)
        self.sample(trial)
        return {name: self.parameters[name].find(value) for name, value in trial.values.items()}

    def baseline(self) -> dict[str, Value] | None:
        """Return the assignment of `fixed` with first choices and middles of ranges; None where there is no `fixed`."""
        for variant in self.variants:
            if variant.topology is Fixed:
                return {name: one.middle for name, one in self._active(variant).items()}
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the space as YAML would have it, every default written out; `from_dict` reads it back."""
        residual = [
            {variant.name: {_last(name): one.plain() for name, one in variant.options.items()}}
            for variant in self.variants
        ]
        return {
            "resnas": FORMAT_VERSION,
            "architecture": {_last(name): one.plain() for name, one in self.stack.items()} | {"residual": residual},
            "training": {_last(name): one.plain() for name, one in self.training.items()},
            "constraints": self.constraints.model_dump(),
        }

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of a space file, for editors."""
        return space_model(TOPOLOGIES).model_json_schema()


def _variants(entries: Sequence[Any] | None, topologies: Mapping[str, type[Topology]]) -> tuple[Variant, ...]:
    """Return the variants of the entries that were read; none given is `fixed`."""
    if entries is None:
        return (Variant("fixed", Fixed, {}),)
    return tuple(
        Variant(
            entry.name,
            topologies[entry.name],
            {f"{RESIDUAL}.{entry.name}.{name}": one for name, one in dimensions(entry.options, topologies[entry.name])},
        )
        for entry in entries
    )


def _product(values: Sequence[Iterable[Value]]) -> Iterator[tuple[Value, ...]]:
    """Yield what itertools.product yields, without listing the values first: a range may be huge."""
    if not values:
        yield ()
        return
    for first in values[0]:
        for others in _product(values[1:]):
            yield (first, *others)


def _last(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]
