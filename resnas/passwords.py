"""Passwords in storage URLs: which variables may hold such URLs, and how the passwords are kept out of texts and out of
the environment of child processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from urllib.parse import unquote

STORAGE_VARIABLES = ("RESNAS_STORAGE", "OPTUNA_STORAGE")
"""Environment variables that may hold the storage URL, the first one first."""
SHOWN = "***"
_IN_URL = re.compile(r"(\w://[^\s:/@]*):\S*@")
_IN_QUERY = re.compile(r"(?i)(password=)[^\s&'\"]+")
_lock = threading.Lock()


def without_passwords(text: str, url: str = "") -> str:
    """Return a text in which the passwords of URLs are hidden, and those of `url` also where they stand alone."""
    text = _IN_QUERY.sub(rf"\1{SHOWN}", _IN_URL.sub(rf"\1:{SHOWN}@", text))
    if (found := re.match(r"[^:]+://[^:/@]*:(.*)@", url)) is not None:
        written = found[1]
        # a password with an unescaped separator is split there, and messages then name a part of it
        parts = {written, unquote(written), *re.split(r"[@:/?#]", written)} - {""}
        for part in sorted(parts, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", SHOWN, text)
    return text


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Take the storage URLs out of the environment while a child process is started, which inherits it."""
    with _lock:
        kept = {name: os.environ.pop(name) for name in STORAGE_VARIABLES if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)
