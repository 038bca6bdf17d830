"""What paired runs with fresh seeds said of the claims of a ranking: `confirm.json` of the results folder, read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "confirm.json"
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
BETTER, WORSE = "better", "worse"
"""Of two architectures, where no claim about a property is tested."""


@dataclass(frozen=True)
class Confirmation:
    """One claim, put to the test: a property changed from one value to another, all else equal; or two architectures.

    `metrics` has, by name: difference, low, high (in units of the metric), effect_size, n, p; None where not measured.
    """

    claim: str
    changed: str
    """The property."""
    before: Any
    after: Any
    target: str
    verdict: str
    sentence: str
    remarks: tuple[str, ...]
    """What else is to be known of it, in words."""
    metrics: dict[str, dict[str, float | None]]

    @property
    def outcome(self) -> str:
        """The verdict in one word."""
        return next((one for one in (CONFIRMED, REFUTED, BETTER, WORSE) if self.verdict.startswith(one)), UNDECIDED)


def read_confirmations(folder: Path) -> list[Confirmation]:
    """Return what was confirmed; nothing where there is no file. What cannot be read is left out."""
    try:
        entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [_read(one) for one in entries if _is_readable(one)] if isinstance(entries, list) else []


def _is_readable(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("verdict", "sentence"))


def _read(entry: dict[str, Any]) -> Confirmation:
    remarks = entry.get("remarks")
    metrics = entry.get("metrics") if isinstance(entry.get("metrics"), dict) else {}
    return Confirmation(
        claim=str(entry.get("claim") or entry.get("property") or ""),
        changed=str(entry.get("property") or ""),
        before=entry.get("from"),
        after=entry.get("to"),
        target=str(entry.get("target") or ""),
        verdict=str(entry.get("verdict_text") or entry["verdict"]),
        sentence=entry["sentence"],
        remarks=tuple(str(one) for one in remarks) if isinstance(remarks, list) else (),
        metrics={str(name): _numbers(values) for name, values in (metrics or {}).items() if isinstance(values, dict)},
    )


def _numbers(values: dict[str, Any]) -> dict[str, float | None]:
    names = ("difference", "low", "high", "effect_size", "n", "p")
    return {name: _number(values.get(name)) for name in names}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None
