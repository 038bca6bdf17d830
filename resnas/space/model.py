"""The models that read a space, derived from the records of an architecture, so that a new field needs no change here.

Every field of a record becomes a union of constant, list of choices and (for numbers) range, read into a `Dimension`.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, create_model, model_validator
from pydantic.fields import FieldInfo

from resnas.architecture import Architecture, Stack, Training
from resnas.by_name import Named, empty_mapping, named_type
from resnas.problems import CHOICES, CONSTANT, RANGE, InputModel, given
from resnas.record import Count, Positive, Record
from resnas.residual import Topology
from resnas.space.dimensions import Choices, Dimension, Range

FORMAT_VERSION = 1


class Constraints(Record):
    """Limits that an architecture must keep, or else it is infeasible."""

    max_parameters: Count | None = None
    """Most trained parameters of the model."""
    max_flops: Count | None = None
    """Most FLOPs of one forward pass over one example."""


class RangeModel(InputModel):
    """The mapping `{low, high[, step][, log]}`; subclasses give the types of low, high and step."""

    low: Any
    high: Any
    step: Any = None
    log: bool = Field(default=False, description="Search on a logarithmic scale.")

    @model_validator(mode="after")
    def _consistent(self) -> RangeModel:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a log range needs low above 0, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError("a log range cannot have a step; leave out one of the two")
        if self.step is not None and self.step > self.high - self.low:
            raise ValueError(f"step {self.step} is larger than the range from {self.low} to {self.high}")
        return self


def _version(value: Any) -> Any:
    if type(value) is not int or value != FORMAT_VERSION:
        raise ValueError(f"must be {FORMAT_VERSION}, the format version that this resnas reads, not {given(value)}")
    return value


FormatVersion = Annotated[Literal[1], BeforeValidator(_version)]


def _kind(value: Any) -> str:
    return CHOICES if isinstance(value, list) else RANGE if isinstance(value, dict) else CONSTANT


def _distinct(values: list[Any]) -> Choices:
    if not values:
        raise ValueError("has no choices; give at least one")
    for position, value in enumerate(values):
        if any(value == other and type(value) is type(other) for other in values[:position]):
            raise ValueError(f"choice {given(value)} is given twice")
    return Choices(tuple(values))


def _number(annotation: Any) -> tuple[Any, type[int] | type[float]] | None:
    """Return the numeric part of an annotation with its limits (without an `or null`), and int or float; or None."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated and (inner := _number(arguments[0])):
        return Annotated[(inner[0], *arguments[1:])], inner[1]
    if origin in (Union, types.UnionType):
        return next(filter(None, map(_number, arguments)), None)
    return (annotation, annotation) if annotation in (int, float) else None


def _constant(value: Any) -> Choices:
    return Choices((value,))


def _as_range(model: RangeModel) -> Range:
    return Range(model.low, model.high, model.step, model.log)


def _searchable_type(name: str, field: FieldInfo) -> Any:
    """Return the union of constant, choices and range for a field of a record."""
    one: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    many = Annotated[
        list[one], AfterValidator(_distinct), Field(json_schema_extra={"minItems": 1, "uniqueItems": True})
    ]
    options: list[Any] = [Annotated[one, AfterValidator(_constant), Tag(CONSTANT)], Annotated[many, Tag(CHOICES)]]
    if number := _number(one):
        limit, kind = number
        step: Any = Count if kind is int else Positive
        limits = create_model(
            f"RangeOf_{name}",
            __base__=RangeModel,
            low=(limit, Field(description="Lowest value.")),
            high=(limit, Field(description="Highest value.")),
            step=(step | None, Field(default=None, description="Distance between values.")),
        )
        options.append(Annotated[limits, AfterValidator(_as_range), Tag(RANGE)])
    return Annotated[functools.reduce(operator.or_, options), Discriminator(_kind)]


def searchable(record: type[Record]) -> type[InputModel]:
    """Return the model that reads every field of `record` as a dimension; defaults are those of the record."""
    fields: dict[str, Any] = {}
    for name, field in record.model_fields.items():
        information: dict[str, Any] = {"description": field.description}
        if not field.is_required():
            default = field.get_default(call_default_factory=True)
            information |= {"default": Choices((default,)), "json_schema_extra": {"default": default}}
        fields[name] = (_searchable_type(f"{record.__name__}_{name}", field), Field(**information))
    return create_model(f"Searchable{record.__name__}", __base__=InputModel, **fields)


def dimensions(model: InputModel, record: type[Record]) -> Iterator[tuple[str, Dimension]]:
    """Yield the fields of a model made by `searchable(record)`."""
    for name in record.model_fields:
        yield name, getattr(model, name)


def _no_variant_twice(value: Any, topologies: Mapping[str, type[Topology]]) -> list[Named]:
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise ValueError("has no choices; give at least one")
    seen = set()
    for entry in entries:
        if topologies[entry.name] in seen:
            raise ValueError(f"{entry.name!r} is given twice; list its options in one entry")
        seen.add(topologies[entry.name])
    return entries


def space_model(topologies: dict[str, type[Topology]]) -> type[InputModel]:
    """Return the model of a whole space in which `topologies` are known."""
    return _space_model(tuple(topologies.items()))


@functools.lru_cache(maxsize=16)
def _space_model(topologies: tuple[tuple[str, type[Topology]], ...]) -> type[InputModel]:
    entry: Any = named_type(dict(topologies), searchable, "residual topology")
    one_or_many: Any = Annotated[
        Annotated[entry, Tag(CONSTANT)] | Annotated[list[entry], Tag(CHOICES)],
        Discriminator(lambda value: CHOICES if isinstance(value, list) else CONSTANT),
    ]
    distinct = functools.partial(_no_variant_twice, topologies=dict(topologies))
    residual = Field(
        default=None,
        description="Residual topologies: a name, or {name: {option: …}}, one or a list.",
        json_schema_extra={"default": "fixed"},
    )
    architecture = create_model(
        "SearchableArchitecture",
        __base__=searchable(Stack),
        residual=(Annotated[one_or_many, AfterValidator(distinct)], residual),
    )
    training: Any = searchable(Training)
    version = Field(description="Version of the file format.")
    return create_model(
        "SearchSpace",
        __base__=InputModel,
        resnas=(FormatVersion, version),
        architecture=(
            Annotated[architecture, BeforeValidator(empty_mapping)],
            Field(default_factory=architecture, description=_summary(Architecture)),
        ),
        training=(
            Annotated[training, BeforeValidator(empty_mapping)],
            Field(default_factory=training, description=_summary(Training)),
        ),
        constraints=(
            Annotated[Constraints, BeforeValidator(empty_mapping)],
            Field(default_factory=Constraints, description=_summary(Constraints)),
        ),
    )


def _summary(record: type[Record]) -> str:
    return (record.__doc__ or "").split("\n")[0]
