"""The frozen, validated record that everything a YAML file can say is made of, and how a name in YAML finds its class.

A record holds plain values only and imports nothing heavy, so that files can be checked without torch.
"""

from __future__ import annotations

import importlib
import operator
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from resnas.errors import InputError, nearest


class Record(BaseModel):
    """Immutable values; unknown keys, infinities and silent conversions (text or a bool for a number) are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _whole(value: Any) -> Any:
    """Let `2e6` stand for an integer: YAML reads it as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
"""A whole number of at least one; may be written as `2e6`."""
CountOrZero = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
"""A whole number of at least zero."""
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

RecordType = TypeVar("RecordType", bound=Record)


def find_class(name: str, registry: dict[str, type[RecordType]], base: type[RecordType], what: str) -> type[RecordType]:
    """Return the class that a YAML name stands for: an entry of `registry`, or an import by `package.module:Class`.

    Raises:
        InputError: the name is unknown, cannot be imported, or is not a subclass of `base`.
    """
    if ":" not in name:
        if name not in registry:
            known = ", ".join(registry)
            raise InputError(
                f"unknown {what} {name!r}; known: {known}, or your own as 'package.module:Class'"
                + nearest(name, registry)
            )
        return registry[name]
    module_name, _, class_name = name.partition(":")
    try:
        found = operator.attrgetter(class_name)(importlib.import_module(module_name))
    except Exception as error:  # whatever the user's module raises
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"cannot import the {what} {name!r}: {reason}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(f"{name!r} is not a {what}: it must be a subclass of {base.__module__}.{base.__name__}")
    return found


def make_named(value: Any, registry: dict[str, type[RecordType]], base: type[RecordType], what: str) -> RecordType:
    """Return the record that `name` or `{name: {option: value}}` stands for; a record is returned as it is.

    Raises:
        InputError: as `find_class`.
        pydantic.ValidationError: the options do not fit the class.
    """
    if isinstance(value, base):
        return value
    if not isinstance(value, str) and not (isinstance(value, dict) and len(value) == 1):
        raise InputError(f"must be a {what}, or {{name: {{option: value}}}}, not {value!r}")
    name, options = (value, {}) if isinstance(value, str) else next(iter(value.items()))
    return find_class(name, registry, base, what)(**options or {})


def class_name(cls: type[Record], registry: dict[str, type[RecordType]]) -> str:
    """Return the YAML name of a class: its name in `registry`, or its dotted path."""
    for name, known in registry.items():
        if known is cls:
            return name
    return f"{cls.__module__}:{cls.__qualname__}"
