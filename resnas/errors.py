"""The errors that resnas raises on purpose, each a sentence for a person, and the shell exit code of each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from resnas.passwords import without_passwords


class ResnasError(Exception):
    """Something failed for a reason that can be said in one sentence (exit code 1); it hides passwords in URLs."""

    exit_code = 1

    def __init__(self, sentence: str = "") -> None:
        super().__init__(without_passwords(sentence))


class InputError(ResnasError):
    """The user's file, option or data cannot be used as given (exit code 2)."""

    exit_code = 2


class TrialFailed(ResnasError):
    """A trial cannot go on: its loss is not finite. The message says where."""


def nearest(name: object, known: Iterable[str]) -> str:
    """Return `" (did you mean 'x'?)"` for the known name nearest to `name`, or `""` where none is near."""
    match = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f" (did you mean {match[0]!r}?)" if match else ""
