"""Choosing a class by name in YAML: `name`, or `{name: {option: value}}`, the name from a registry or importable.

Residual topologies and tasks are both chosen so. The model is made from the registry, so that a new class needs no
change here, and editors learn its options from the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from resnas.errors import InputError
from resnas.problems import InputModel, Problem, given
from resnas.record import Record, RecordType, find_class
from resnas.yaml_file import Place

IMPORTABLE = r"^[\w.]+:[\w.]+$"
"""Pattern of `package.module:Class`."""


class Named(InputModel):
    """A mapping with exactly one key, the name; a subclass has one optional field per known name."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "maxProperties": 1,
            "patternProperties": {IMPORTABLE: {"type": ["object", "null"]}},
        }
    )

    @model_validator(mode="after")
    def _one_name(self) -> Named:
        names = sorted(self.model_fields_set)
        if len(names) != 1:
            found = f"{len(names)}: {', '.join(names)}" if names else "an empty mapping"
            raise ValueError(f"must name one {getattr(self, 'noun', 'class')}, not {found}")
        return self

    @property
    def name(self) -> str:
        """The name that was given."""
        return next(iter(self.model_fields_set))

    @property
    def options(self) -> Any:
        """The options below the name."""
        return getattr(self, self.name)


def empty_mapping(value: Any) -> Any:
    """Let a key with nothing below it stand for an empty mapping."""
    return {} if value is None else value


def find_classes(
    value: Any, place: Place, registry: dict[str, type[RecordType]], base: type[RecordType], noun: str
) -> tuple[dict[str, type[RecordType]], list[Problem]]:
    """Return `registry` with the imported classes that `value` (an entry or a list of them) names, and what failed."""
    found, problems = dict(registry), []
    for where, name in _names(value, place):
        try:
            found[name] = find_class(name, registry, base, noun)
        except InputError as error:
            problems.append(Problem(where, str(error)))
    return found, problems


def named_type(
    registry: Mapping[str, type[Record]], options_of: Callable[[type[Any]], type[BaseModel]], noun: str
) -> Any:
    """Return the annotated type of one entry: a name, or a mapping from one name to its options.

    Args:
        registry: the classes by name.
        options_of: gives the model that reads the options of a class.
        noun: what the classes are, for messages.
    """
    models = {name: options_of(cls) for name, cls in registry.items()}
    for name, model in models.items():
        others = {option for other in models.values() for option in other.model_fields} - set(model.model_fields)
        model.owner = name  # type: ignore[attr-defined]
        model.others = {  # type: ignore[attr-defined]
            option: [other for other in models if option in models[other].model_fields] for option in others
        }
    fields: dict[str, Any] = {
        name: (
            Annotated[model, BeforeValidator(empty_mapping, json_schema_input_type=model | None)],
            _entry_field(registry[name]),
        )
        for name, model in models.items()
    }
    entry = create_model("Entry", __base__=Named, **fields)
    entry.noun = noun  # type: ignore[attr-defined]
    return Annotated[
        entry, BeforeValidator(_name_to_mapping(noun, registry), json_schema_input_type=_written_as(entry, models))
    ]


def _written_as(entry: type[Named], models: Mapping[str, type[BaseModel]]) -> Any:
    """Return the type for editors: a name that needs no option, an importable name, or a mapping."""
    bare = [
        name for name, model in models.items() if not any(field.is_required() for field in model.model_fields.values())
    ]
    importable = Annotated[str, Field(pattern=IMPORTABLE)]
    return Literal[tuple(bare)] | importable | entry if bare else importable | entry


def _entry_field(cls: type[Record]) -> Any:
    summary = (cls.__doc__ or "").strip().split("\n")[0]
    return Field(default=None, description=summary)


def _name_to_mapping(noun: str, registry: Mapping[str, type[Record]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return {value: None}
        if not isinstance(value, dict | BaseModel):
            raise ValueError(
                f"must be a {noun} ({', '.join(registry)}) or {{name: {{option: value}}}}, not {given(value)}"
            )
        return value

    return convert


def _names(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the names in an entry or list of entries, each with its place."""
    if isinstance(value, list):
        for position, item in enumerate(value):
            if not isinstance(item, list):
                yield from _names(item, (*place, position))
    elif isinstance(value, str):
        yield (*place, value), value
    elif isinstance(value, dict):
        for name in value:
            yield (*place, name), name
