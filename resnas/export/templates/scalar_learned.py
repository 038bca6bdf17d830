"""Depth mixing `scalar_learned`: every sublayer of a Transformer reads a weighted sum of all earlier sources.

Sources v_0, v_1, … are the embedding and what each sublayer has written: its output, before any sum. Read l has l
sources, v_0 to v_(l-1); reads 1 to S are consumed by the S sublayers, and read S + 1 is the readout:

    read_l = Σ_(i < l) m_(l,i) v_i

m_(l,i) is one number for all tokens (one per feature where `per_channel`), and starts at 1, which is the plain residual
stream.

    sources = [embedding]
    for sublayer in sublayers:
        sources.append(sublayer(mixing(sources)))
    readout = mixing(sources)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SUBLAYERS = 16
WIDTH = 48
PER_CHANNEL = False


class DepthMixing(nn.Module):
    """Makes the read of each sublayer from the sources before it.

    Args:
        sublayers: S, two per layer: attention and MLP.
        width: features of a source.
        per_channel: learn one weight per feature.
    """

    def __init__(self, sublayers: int = SUBLAYERS, width: int = WIDTH, per_channel: bool = PER_CHANNEL) -> None:
        super().__init__()
        self.sublayers = sublayers
        self.width = width
        entries = (sublayers + 1) * (sublayers + 2) // 2
        self.scalars = nn.Parameter(torch.ones(entries, width if per_channel else 1))
        """The l weights of read l follow those of read l - 1."""

    def forward(self, sources: Sequence[Tensor]) -> Tensor:
        """Return read number `len(sources)`, of the shape of a source, [..., width]."""
        read = len(sources)
        first = read * (read - 1) // 2
        weights = self.scalars[first : first + read]  # [sources, width or 1]
        return torch.stack([weight * source for weight, source in zip(weights, sources, strict=True)]).sum(0)
