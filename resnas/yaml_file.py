"""Reading a YAML file: values as YAML 1.2 means them, and the line on which every one of them stands.

PyYAML follows YAML 1.1, where `1e-4` is text, `no` is false and `12:30` is a number. Here plain scalars follow the core
schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema); there are no dates, merges or object tags.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from resnas.errors import InputError, nearest

Place = tuple[str | int, ...]
"""Keys (and list positions) from the top of a document down to a value."""

_CORE_SCHEMA = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_TAG = "tag:yaml.org,2002:"


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's scanner and parser with the scalars of YAML 1.2; only its node graph is used."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012
        None: [(_TAG + kind, re.compile(f"(?:{pattern})\\Z")) for kind, pattern in _CORE_SCHEMA.items()]
    }


@dataclass(frozen=True)
class Document:
    """A mapping read from YAML, with the origin of every value."""

    source: str
    """The file as the user named it."""
    values: dict[str, Any]
    lines: dict[Place, int]
    """The line (from 1) of each key and list item."""
    settings: dict[Place, str]
    """The `--set key=value` that a place comes from."""

    def where(self, place: Place) -> str:
        """Return `file:line` of the nearest known place at or above `place`, or the `--set` that it comes from."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.settings:
                return f"--set {self.settings[place[:end]]}"
            if place[:end] in self.lines:
                return f"{self.source}:{self.lines[place[:end]]}"
        return self.source

    def order(self, place: Place) -> int:
        """Return the line of a place for sorting; 0 where it has none."""
        known = (place[:end] for end in range(len(place), 0, -1) if place[:end] in self.lines)
        return self.lines.get(next(known, ()), 0)


def dotted(place: Place) -> str:
    """Write a place as in `--set`: keys joined by dots, without list positions."""
    return ".".join(str(part) for part in place if isinstance(part, str))


def written(value: Any) -> str:
    """Write a value on one line as YAML does."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def load_yaml(path: str | Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises:
        InputError: the file is missing, unreadable, not UTF-8, not YAML, empty or no mapping, or a key is given twice.
    """
    return parse_yaml(_text(Path(path)), str(path))


def parse_yaml(text: str, source: str) -> Document:
    """Read YAML text; `source` names it in errors. Raises InputError as `load_yaml` does."""
    node = _compose(text, source)
    if node is None:
        raise InputError(f"{source}: is empty; it must be a mapping of keys to values")
    lines: dict[Place, int] = {}
    values = _value(node, (), lines, source, ())
    if not isinstance(values, dict):
        raise InputError(
            f"{source}:{node.start_mark.line + 1}: must be a mapping of keys to values, not {written(values)}"
        )
    return Document(source, values, lines, {})


def set_dotted(document: Document, setting: str) -> Document:
    """Return the document with one value replaced, as `--set dotted.key=value` asks; the value is YAML.

    Missing mappings on the way are made. Within a list, a key picks the item of that name or the mapping that has it.

    Raises:
        InputError: there is no `=`, no value, or something on the way is not a mapping.
    """
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not text.strip() or not all(key.split(".")):
        raise InputError(f"--set {setting}: must be dotted.key=value, with null for no value")
    node = _compose(text, f"--set {setting}")
    value = None if node is None else _value(node, (), {}, f"--set {setting}", ())
    values = copy.deepcopy(document.values)
    parts: Sequence[str] = key.split(".")
    parent: Any = values
    place: Place = ()
    while True:
        step, parts = _next_step(parent, parts, place, setting)
        place = (*place, *step)
        for part in step[:-1]:
            parent = parent[part]
        if not parts:
            break
        if parent[step[-1]] is None:
            parent[step[-1]] = {}
        parent = parent[step[-1]]
    parent[step[-1]] = value
    lines = {known: line for known, line in document.lines.items() if known[: len(place)] != place}
    settings = {known: text for known, text in document.settings.items() if known[: len(place)] != place}
    return Document(document.source, values, lines, settings | {place: setting})


def _next_step(parent: Any, parts: Sequence[str], place: Place, setting: str) -> tuple[Place, Sequence[str]]:
    """Return the keys that lead one step down, made where missing, and the parts that are left.

    A key may itself hold dots (`package.module:Class`), so the longest one that exists is taken.
    """
    joined = [(".".join(parts[:end]), parts[end:]) for end in range(len(parts), 0, -1)]
    if isinstance(parent, list):
        for key, rest in joined:
            for position, item in enumerate(parent):
                if rest and item == key:
                    parent[position] = {key: None}
                    return (position, key), rest
                if isinstance(item, dict) and key in item:
                    return (position, key), rest
        names = [name for item in parent for name in (item if isinstance(item, dict) else [str(item)])]
        raise InputError(
            f"--set {setting}: {dotted(place)} is a list without an entry {parts[0]!r} to set; "
            f"it has: {', '.join(map(str, names))}{nearest(parts[0], map(str, names))}"
        )
    if not isinstance(parent, dict):
        raise InputError(f"--set {setting}: {dotted(place)} is {written(parent)}, so nothing can be set inside it")
    for key, rest in joined:
        if key in parent:
            return (key,), rest
    parent[parts[0]] = None
    return (parts[0],), parts[1:]


def _text(path: Path) -> str:
    """Return the text of a file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a YAML file")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        names = [other.stem for other in path.parent.glob("*.y*ml")]
        raise InputError(f"{path}: no such file{nearest(path.stem, names)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _compose(text: str, source: str) -> yaml.Node | None:
    """Return the node graph of YAML text, or None where it is empty."""
    try:
        loader = _CoreLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"{source}:{line}: is not YAML: the character {chr(error.character)!r} is not allowed"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, (error.context, error.problem)))
        if "'\\t'" in problem:
            problem = "a tab; indent with spaces"
        raise InputError(f"{source}{f':{mark.line + 1}' if mark else ''}: is not YAML: {problem}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


def _value(node: yaml.Node, place: Place, lines: dict[Place, int], source: str, above: tuple[yaml.Node, ...]) -> Any:
    """Return the value of a node and enter the lines of all that is in it."""
    here = f"{source}:{lines.get(place, node.start_mark.line + 1)}: {dotted(place)}".rstrip(": ")
    if node in above:
        raise InputError(f"{here}: refers to itself")
    if node.tag.removeprefix(_TAG) not in {*_CORE_SCHEMA, "str", "map", "seq"}:
        raise InputError(f"{here}: the tag {node.tag.replace(_TAG, '!!')} is not supported")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place, lines, source, (*above, node))
    if isinstance(node, yaml.SequenceNode):
        items = []
        for position, item in enumerate(node.value):
            lines[(*place, position)] = item.start_mark.line + 1
            items.append(_value(item, (*place, position), lines, source, (*above, node)))
        return items
    try:
        return _scalar(node.tag.removeprefix(_TAG), node.value)
    except ValueError as error:
        raise InputError(f"{here}: {error}") from None


def _mapping(
    node: yaml.MappingNode, place: Place, lines: dict[Place, int], source: str, above: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    """Return a mapping with text keys, each given once."""
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag != _TAG + "str":
            within = f" in {dotted(place)}" if place else ""
            given = key_node.value if isinstance(key_node, yaml.ScalarNode) else f"a {key_node.id}"
            raise InputError(f"{source}:{line}: a key{within} must be a name, not {given}")
        key = key_node.value
        inner = (*place, key)
        if key in mapping:
            raise InputError(f"{source}:{line}: {dotted(inner)}: is given twice; the first is on line {lines[inner]}")
        lines[inner] = line
        mapping[key] = _value(value_node, inner, lines, source, above)
    return mapping


def _scalar(kind: str, text: str) -> str | int | float | bool | None:
    """Return the value of a scalar of a core schema type."""
    if kind == "str":
        return text
    if not re.fullmatch(_CORE_SCHEMA[kind], text):
        raise ValueError(f"{text!r} is not of the type that its tag !!{kind} asks for")
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
