"""Training stability as numbers: spikes of the loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WINDOW_STEPS = 32
"""Steps before a step that say what is usual."""
DEVIATIONS = 8.0
"""How many median absolute deviations above the median make a spike (about five standard deviations of normal
noise)."""
SMALLEST_RISE = 0.1
"""Nats; a smaller rise is never a spike."""


def loss_spikes(losses: Sequence[float]) -> int:
    """Return the number of spikes: runs of steps whose loss lies far above the median of the steps before."""
    values = np.asarray(losses, dtype=float)
    if len(values) <= WINDOW_STEPS:
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(values[:-1], WINDOW_STEPS)
    median = np.median(windows, axis=1)
    deviation = np.median(np.abs(windows - median[:, None]), axis=1)
    high = values[WINDOW_STEPS:] > median + np.maximum(DEVIATIONS * deviation, SMALLEST_RISE)
    starts = high & ~np.concatenate(([False], high[:-1]))
    return int(starts.sum())
