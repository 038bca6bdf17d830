"""What identifies a study over time: readable differences between two of its states, and derived seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from resnas.yaml_file import written

_ABSENT = object()


def derive_seed(*parts: str | int | float | bool | None) -> int:
    """Return a seed of 31 bits that depends on all parts and is the same on every machine (sha256 of their JSON)."""
    text = json.dumps(parts, separators=(",", ":"), allow_nan=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line `dotted.key: old → new` for each value that differs between two nested mappings."""
    before, after = _flat(old), _flat(new)
    return [
        f"{key}: {_shown(before.get(key, _ABSENT))} → {_shown(after.get(key, _ABSENT))}"
        for key in dict.fromkeys([*before, *after])
        if _text(before.get(key, _ABSENT)) != _text(after.get(key, _ABSENT))
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted key; a list of `{name: …}` is its names and what is below each."""
    if isinstance(value, Mapping) and (value or not prefix):
        parts = [_flat(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items()]
        return {key: leaf for part in parts for key, leaf in part.items()}
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and len(item) == 1 for item in value):
        merged = {key: item for entry in value for key, item in entry.items()}
        if len(merged) == len(value):
            return {prefix: list(merged)} | _flat(merged, prefix)
    return {prefix: value}


def _text(value: Any) -> str:
    """Return text that differs where values do, 1 and true included."""
    return "" if value is _ABSENT else json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    return "(absent)" if value is _ABSENT else written(value)
