"""The file of one architecture: a search space in which nothing varies, so that `check` and editors know it too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnas.architecture import Architecture, Stack
from resnas.problems import Problem, check
from resnas.space.model import FORMAT_VERSION
from resnas.space.space import SearchSpace
from resnas.yaml_file import Document, load_yaml, set_dotted


def load_architecture(path: str | Path, overrides: Sequence[str] = ()) -> Architecture:
    """Read the file of one architecture; each override is `dotted.key=value`.

    Raises:
        InputError: something cannot be used as given, or has several values; the message has the place.
    """
    return _read(load_yaml(path), overrides)


def changed(architecture: Architecture, overrides: Sequence[str]) -> Architecture:
    """Return an architecture with some of its values set, each override `dotted.key=value`. Raises InputError."""
    return _read(Document("architecture", plain(architecture), {}, {}), overrides) if overrides else architecture


def plain(architecture: Architecture) -> dict[str, Any]:
    """Return the values of the file of an architecture."""
    values = architecture.model_dump(mode="json")
    stack = {name: values[name] for name in Stack.model_fields}
    return {
        "resnas": FORMAT_VERSION,
        "architecture": stack | {"residual": values["residual"]},
        "training": values["training"],
    }


def _read(document: Document, overrides: Sequence[str]) -> Architecture:
    for override in overrides:
        document = set_dotted(document, override)
    space = SearchSpace.from_document(document)
    sentence = "must be one value: this file is of one architecture, not a space"
    check(document, [Problem(tuple(name.split(".")), sentence) for name in space.parameters])
    return space.build({})
