"""How long work ends before its time: cleanly at the first signal, at once at a second Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
"""Exit code."""
STANDARD_ERROR = 2
STOPPING = "Stopping: running trials are ended and will run again next time …\n"


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM calls `stop`, which asks for a clean end; a Ctrl-C after it ends at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(STANDARD_ERROR, STOPPING.encode())  # not print: a handler must not import, and rich may

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
