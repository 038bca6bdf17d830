"""What is wrong with a file, as one sentence a person can act on: where, what was given, what is allowed.

pydantic finds the problems; this module words them from the annotations of the models that refused the values.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Discriminator, ValidationError
from pydantic.fields import FieldInfo

from resnas.errors import InputError, nearest
from resnas.record import Record
from resnas.yaml_file import Document, Place, dotted, written

CONSTANT, CHOICES, RANGE = "«constant»", "«choices»", "«range»"
"""Tags of the union that a searchable value is; they never show in a message."""

_MISSING = "is missing"
"""Said last of the problems on one line: the key may only be misspelt there."""


class InputModel(Record):
    """Base of the models that are derived from records to read a file."""

    model_config = ConfigDict(use_attribute_docstrings=False)


ModelType = TypeVar("ModelType", bound=BaseModel)


class Problem(NamedTuple):
    """One thing that is wrong, and where."""

    place: Place
    sentence: str


def check(document: Document, problems: Iterable[Problem]) -> None:
    """Raise an InputError for the first problem in the order of the file, saying how many more there are."""
    ordered = sorted(
        problems, key=lambda problem: (document.order(problem.place), problem.sentence.startswith(_MISSING))
    )
    if not ordered:
        return
    first = ordered[0]
    parts = [document.where(first.place), dotted(first.place), first.sentence]
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    raise InputError(": ".join(filter(None, parts)) + more)


def validated(document: Document, model: type[ModelType], problems: Sequence[Problem] = ()) -> ModelType:
    """Return the document's values as `model`. Raises InputError for the first problem, those found before included."""
    known = {problem.place for problem in problems}
    try:
        read = model.model_validate(document.values)
    except ValidationError as error:
        check(document, [*problems, *(one for one in problems_of(error, model) if one.place not in known)])
        raise  # not reached: there is a problem
    check(document, problems)
    return read


def problems_of(error: ValidationError, model: type[BaseModel], above: Place = ()) -> list[Problem]:
    """Return the problems that pydantic found when `model` read the value at the place `above`."""
    found = []
    for detail in error.errors(include_url=False):
        place, parent, field = _follow(model, detail["loc"], detail["type"] == "extra_forbidden")
        found.append(Problem((*above, *place), _sentence(dict(detail), place, parent, field)))
    return list(dict.fromkeys(found))


def described(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Say what a type annotation (with the limits in its metadata) allows."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return described(arguments[0], [*arguments[1:], *metadata])
    if origin in (Union, types.UnionType):
        constant_first = any(isinstance(item, Discriminator) for item in metadata)
        return described(arguments[0]) if constant_first else " or ".join(map(described, arguments))
    if origin is Literal:
        return _listed([given(value) for value in arguments])
    if origin in (list, tuple):
        return f"a list, each item {described(arguments[0])}"
    if origin is dict:
        return described(arguments[1])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        names = ", ".join(annotation.model_fields)
        if noun := getattr(annotation, "noun", None):
            return f"the name of a {noun} ({names}), or {{name: {{option: value}}}}"
        return f"a mapping (of {names})" if names else "an empty mapping"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return words.get(annotation, str(annotation)) + _limits(metadata)


def unknown(name: object, known: Iterable[str], noun: str) -> str:
    """Say that a name is unknown, which ones are known, and which is nearest."""
    known = list(known)
    return f"unknown {noun} {name!r}; known: {', '.join(known) or 'none'}{nearest(name, known)}"


def given(value: Any) -> str:
    """Write what was given, text in quotes, all else as YAML does."""
    plain = isinstance(value, bool | int | float | list | dict | None)
    text = written(value) if plain else repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _sentence(detail: dict[str, Any], place: Place, parent: type[BaseModel], field: FieldInfo | None) -> str:
    """Word one error of pydantic."""
    if isinstance(reason := detail.get("ctx", {}).get("error"), Exception):
        return str(reason)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(parent, str(place[-1]))
    allowed = described(parent) if field is None else described(field.annotation, field.metadata)
    if detail["type"] == "missing":
        meaning = (field.description or "").split("\n")[0].rstrip(".") if field else ""
        return f"{_MISSING}; give {allowed}" + (f" ({meaning[0].lower()}{meaning[1:]})" if meaning else "")
    return f"must be {allowed}, not {given(detail['input'])}"


def _unknown_key(parent: type[BaseModel], name: str) -> str:
    """Say which keys a model has, and who else has the one that was given."""
    owner = getattr(parent, "owner", None)
    if owner is None:
        return unknown(name, parent.model_fields, getattr(parent, "noun", "key"))
    others = getattr(parent, "others", {}).get(name)
    elsewhere = f"; {name!r} is an option of {' and '.join(others)}" if others else ""
    options = ", ".join(parent.model_fields) or "none"
    return f"unknown option {name!r}; options of {owner}: {options}{nearest(name, parent.model_fields)}{elsewhere}"


def _follow(model: type[BaseModel], place: Place, extra: bool) -> tuple[Place, type[BaseModel], FieldInfo | None]:
    """Follow a place of pydantic's down through nested models.

    Returns the place without what only pydantic knows (tags, members of unions), the innermost model, and its field;
    None where the place is the model itself or, if `extra`, a key that it does not have.
    """
    kept: list[str | int] = []
    field: FieldInfo | None = None
    inner = [model]
    mapping = False
    for position, part in enumerate(place):
        owner = next((one for one in inner if part in one.model_fields), None)
        if isinstance(part, int) or mapping:
            kept.append(part)
        elif owner:
            model, field = owner, owner.model_fields[part]
            inner = list(_models((field.annotation, *field.metadata)))
            mapping = get_origin(field.annotation) is dict
            kept.append(part)
        elif extra and position == len(place) - 1:
            model, field = inner[0], None
            kept.append(part)
    return tuple(kept), model, field


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that stand anywhere in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in annotation if isinstance(annotation, tuple) else get_args(annotation):
        yield from _models(argument)


def _limits(metadata: Sequence[Any]) -> str:
    """Say the limits of a number."""
    flat = [limit for item in metadata for limit in (item.metadata if isinstance(item, FieldInfo) else [item])]
    lower = next((limit.ge for limit in flat if isinstance(limit, Ge)), None)
    upper = next((limit.le for limit in flat if isinstance(limit, Le)), None)
    if lower is not None and upper is not None:
        return f" from {lower} to {upper}"
    words = [f" of at least {lower}"] if lower is not None else [f" of at most {upper}"] if upper is not None else []
    words += [f" above {limit.gt}" for limit in flat if isinstance(limit, Gt)]
    words += [f" below {limit.lt}" for limit in flat if isinstance(limit, Lt)]
    return " and".join(words)


def _listed(words: Sequence[str]) -> str:
    """Join alternatives."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
