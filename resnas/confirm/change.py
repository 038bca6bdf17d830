"""The two architectures that test a claim: a base that the study has found, and the same with one option changed.

A property with an option of its own is set by that. Others (`reach`, `token_dependent`, …) follow from the residual
topology: the change of one of its options, or of the family, is looked for that moves the property, and what else it
moves is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from resnas.architecture import PROPERTIES, Architecture, Stack, Training
from resnas.confirm.claims import Claim, is_number
from resnas.errors import InputError, ResnasError
from resnas.residual.topology import Scalar
from resnas.space import SearchSpace
from resnas.space.dimensions import Dimension, Range
from resnas.space.space import RESIDUAL
from resnas.tasks.task import TaskShape

MOST_VALUES = 64
"""Values of one option that are tried; of more, and of continuous ranges, the ends and the middle."""
LEAST_SHARE = 0.5
"""A change of a number that moves it less than this share of the claimed way is taken only where none moves it
further."""


class NotTestable(ResnasError):
    """A claim cannot be tested by changing one option of an architecture of this study."""


@dataclass(frozen=True)
class Change:
    """A base architecture and the same with one option changed."""

    option: str
    """Dotted place in YAML of what differs."""
    base: Architecture
    changed: Architecture
    before: Scalar
    after: Scalar
    """The property's values in the two; None where it does not apply."""
    moved_along: tuple[str, ...]
    """Other properties that differ between the two."""


@dataclass(frozen=True)
class Material:
    """What changes are made from: the study's architectures, best first, its space, and the shape of its task."""

    architectures: Sequence[Architecture]
    space: SearchSpace
    shape: TaskShape

    def is_feasible(self, architecture: Architecture) -> bool:
        """Whether it can be built and keeps the constraints of the space."""
        return self.space.infeasible(architecture, self.shape) is None


def find_change(claim: Claim, material: Material) -> Change:
    """Return the change that tests a claim, in the best architecture that it can be made in.

    Raises:
        NotTestable: there is none.
    """
    own = own_option(claim.subject)
    find = _by_own_option if own else _by_topology
    impure = None
    for architecture in material.architectures:
        if (change := find(claim, architecture, material)) is None:
            continue
        if differing(change.base, change.changed) == [change.option]:
            return change
        impure = impure or change  # a window that a smaller stack makes full, for example
    if impure is not None:
        return impure
    raise NotTestable(
        f"{claim.name}: no change of one option of an architecture of this study makes it "
        f"(option: {PROPERTIES[claim.subject].option if claim.subject in PROPERTIES else RESIDUAL})"
    )


def own_option(name: str) -> str | None:
    """Return the dotted option of the stack or the training that sets a property; None where the topology does."""
    if name in Stack.model_fields:
        return f"architecture.{name}"
    return f"training.{name}" if name in Training.model_fields else None


def with_option(architecture: Architecture, option: str, value: Any) -> Architecture:
    """Return the architecture with another value of a dotted option. Raises ValidationError where it does not fit."""
    values = architecture.model_dump()
    part, _, name = option.partition(".")
    if part == "training":
        values["training"][name] = value
    else:
        values[name] = value
    return Architecture(**values)


def differing(one: Architecture, other: Architecture) -> list[str]:
    """Return the dotted options that differ; of options of one family the option, else the residual as a whole."""
    first, second = one.model_dump(mode="json"), other.model_dump(mode="json")
    found = [f"architecture.{name}" for name in Stack.model_fields if first[name] != second[name]]
    if one.family == other.family:
        ours, theirs = first["residual"][one.family], second["residual"][one.family]
        found += [f"{RESIDUAL}.{one.family}.{name}" for name in ours if ours[name] != theirs[name]]
    else:
        found.append(RESIDUAL)
    return found + [
        f"training.{name}" for name in Training.model_fields if first["training"][name] != second["training"][name]
    ]


def moved_along(base: Architecture, changed: Architecture, name: str) -> tuple[str, ...]:
    """Return the properties other than `name` that differ between two architectures."""
    before, after = base.properties(), changed.properties()
    names = dict.fromkeys([*before, *after])
    return tuple(other for other in names if other != name and before.get(other) != after.get(other))


def _change(name: str, option: str, base: Architecture, changed: Architecture) -> Change:
    before, after = base.properties().get(name), changed.properties().get(name)
    return Change(option, base, changed, before, after, moved_along(base, changed, name))


def _by_own_option(claim: Claim, architecture: Architecture, material: Material) -> Change | None:
    """Set both values by the property's own option; None where the property does not apply or they are infeasible.

    Raises:
        InputError: a value is none that the option can have.
    """
    option = own_option(claim.subject)
    assert option is not None
    try:
        base, changed = (with_option(architecture, option, value) for value in (claim.before, claim.after))
    except ValidationError as error:
        problem = error.errors()[0]
        raise InputError(f"--claim {claim.subject}: {problem['input']!r}: {problem['msg']}") from error
    change = _change(claim.subject, option, base, changed)
    is_made = change.before == claim.before and change.after == claim.after
    return change if is_made and all(map(material.is_feasible, (base, changed))) else None


def _by_topology(claim: Claim, architecture: Architecture, material: Material) -> Change | None:
    """Give an architecture the claim's first value by a change of its topology, where it has another one, and look for
    the change that gives it the second."""
    bases = [architecture, *(changed for _, changed in _neighbours(architecture, material))]
    fitting = [one for one in bases if _reaches(one, claim.subject, claim.before, claim.after)]
    start = min(fitting, key=lambda one: _distance(one, claim.subject, claim.before), default=None)
    if start is None or not material.is_feasible(start):
        return None
    changes = [
        _change(claim.subject, option, start, changed)
        for option, changed in _neighbours(start, material)
        if material.is_feasible(changed)
    ]
    moving = [change for change in changes if _moves(change, claim)]
    return min(moving, key=lambda change: _preference(change, claim), default=None)


def _neighbours(architecture: Architecture, material: Material) -> Iterator[tuple[str, Architecture]]:
    """Yield (option, architecture) for each change of one option of the topology, and each other family: with the
    options that the study has seen, best first, then those of `_firsts`."""
    for variant in material.space.variants:
        if variant.name != architecture.family:
            continue
        options = architecture.model_dump()["residual"][variant.name]
        for option, dimension in variant.options.items():
            for value in _values(dimension):
                residual = {variant.name: options | {option.rpartition(".")[2]: value}}
                changed = with_option(architecture, RESIDUAL, residual)
                if changed.residual != architecture.residual:  # a window wide enough is another family
                    yield (option if changed.family == architecture.family else RESIDUAL), changed
    known = [{one.family: one.model_dump()["residual"][one.family]} for one in material.architectures]
    seen = []
    for residual in [*known, *_firsts(material.space)]:
        changed = with_option(architecture, RESIDUAL, residual)
        if changed.family != architecture.family and changed.residual not in seen:
            seen.append(changed.residual)
            yield RESIDUAL, changed


def _firsts(space: SearchSpace) -> Iterator[dict[str, Any]]:
    """Yield each family of a space with the first values of its options, then with one of them changed."""
    for variant in space.variants:
        first = {name.rpartition(".")[2]: dimension.middle for name, dimension in variant.options.items()}
        yield {variant.name: first}
        for name, dimension in variant.options.items():
            for value in _values(dimension):
                yield {variant.name: first | {name.rpartition(".")[2]: value}}


def _values(dimension: Dimension) -> list[Any]:
    """Return the values of an option to try."""
    if dimension.count is not None and dimension.count <= MOST_VALUES:
        return list(dimension)
    ends = [dimension.low, dimension.last] if isinstance(dimension, Range) else []
    return list(dict.fromkeys([*ends, dimension.middle]))


def _reaches(architecture: Architecture, name: str, wanted: Scalar, other: Scalar) -> bool:
    """Whether a property has the wanted value; for numbers, whether it is nearer to that than to the other one."""
    value = architecture.properties().get(name)
    if is_number(value) and is_number(wanted) and is_number(other):
        return abs(value - wanted) < abs(value - other)
    return _is_same(value, wanted)


def _distance(architecture: Architecture, name: str, wanted: Scalar) -> float:
    value = architecture.properties().get(name)
    return abs(value - wanted) if is_number(value) and is_number(wanted) else 0.0


def _moves(change: Change, claim: Claim) -> bool:
    """Whether a change moves the property the claimed way; to the claimed value where that is no number."""
    share = _share(change, claim)
    return _is_same(change.after, claim.after) if share is None else share > 0


def _is_same(value: Scalar, wanted: Scalar) -> bool:
    return type(value) is type(wanted) and value == wanted


def _share(change: Change, claim: Claim) -> float | None:
    """Return how far a change goes, over how far the claimed one does; None where they are not between numbers."""
    before, after = change.before, change.after
    low, high = claim.before, claim.after
    if is_number(before) and is_number(after) and is_number(low) and is_number(high):
        return (after - before) / (high - low)
    return None


def _preference(change: Change, claim: Claim) -> tuple[bool, bool, bool, float, int]:
    """Return what is least for the best change: far enough, the property's own option, not the family, near to the
    claimed value, few other properties moved."""
    share = _share(change, claim)
    is_short = share is not None and share < LEAST_SHARE
    own = PROPERTIES[claim.subject].option if claim.subject in PROPERTIES else claim.subject
    is_other = change.option.rpartition(".")[2] != own.rpartition(".")[2]
    distance = _distance(change.changed, claim.subject, claim.after)
    return is_short, is_other, change.option == RESIDUAL, distance, len(change.moved_along)
