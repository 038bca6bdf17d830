"""Durations on the command line: `2h`, `1h30m`, `45s`, or seconds."""

from __future__ import annotations

import re

from resnas.errors import InputError

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str, option: str) -> float:
    """Return the seconds of a duration. Raises InputError, naming the option."""
    number = r"(\d+(?:\.\d+)?)"
    whole = re.fullmatch(rf"\s*(?:{number}[dhms]\s*)+|\s*{number}\s*", text)
    parts = re.findall(rf"{number}([dhms]?)", text) if whole else []
    total = sum(float(amount) * SECONDS[unit or "s"] for amount, unit in parts)
    if total <= 0:
        raise InputError(f"{option}: {text!r} is no duration; give one like 2h, 1h30m, 90m or 45s")
    return total
