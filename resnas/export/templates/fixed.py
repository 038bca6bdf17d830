"""Depth mixing `fixed`: every sublayer of a Transformer reads the plain sum of all earlier sources (PreNorm residual).

Sources v_0, v_1, … are the embedding and what each sublayer has written: its output, before any sum. Read l has l
sources, v_0 to v_(l-1); reads 1 to S are consumed by the S sublayers, and read S + 1 is the readout:

    read_l = Σ_(i < l) v_i

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


class DepthMixing(nn.Module):
    """Makes the read of each sublayer from the sources before it; has nothing to learn.

    Args:
        sublayers: S, two per layer: attention and MLP.
        width: features of a source.
    """

    def __init__(self, sublayers: int = SUBLAYERS, width: int = WIDTH) -> None:
        super().__init__()
        self.sublayers = sublayers
        self.width = width

    def forward(self, sources: Sequence[Tensor]) -> Tensor:
        """Return read number `len(sources)`, of the shape of a source, [..., width]."""
        return torch.stack(list(sources)).sum(0)
