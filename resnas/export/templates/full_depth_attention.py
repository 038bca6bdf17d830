"""Depth mixing `full_depth_attention`: every sublayer of a Transformer attends to all earlier sources.

Sources v_0, v_1, … are the embedding and what each sublayer has written: its output, before any sum. Read l has l
sources, v_0 to v_(l-1); reads 1 to S are consumed by the S sublayers, and read S + 1 is the readout:

    read_l  = Σ_(i < l) α_(l,i) v_i
    α_(l,·) = softmax over i of w_l · k_i
    k_i     = v_i / rms(v_i)      where `key_norm` is "rms", and v_i itself where it is "none"

w_l is a learned query of read l that starts at zero, so that every source starts with the same weight. Read 1 has one
source and no query. (Attention Residuals, arXiv 2603.15031.)

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
KEY_NORM = "rms"
EPSILON = 1e-12
"""Added to mean squares; far below those of sources."""


class DepthMixing(nn.Module):
    """Makes the read of each sublayer from the sources before it.

    Args:
        sublayers: S, two per layer: attention and MLP.
        width: features of a source.
        key_norm: "rms" or "none".
    """

    def __init__(self, sublayers: int = SUBLAYERS, width: int = WIDTH, key_norm: str = KEY_NORM) -> None:
        super().__init__()
        self.sublayers = sublayers
        self.width = width
        self.key_norm = key_norm
        self.queries = nn.Parameter(torch.zeros(sublayers, width))
        """Of reads 2 to S + 1."""

    def forward(self, sources: Sequence[Tensor]) -> Tensor:
        """Return read number `len(sources)`, of the shape of a source, [..., width]."""
        if len(sources) == 1:
            return sources[0]
        values = torch.stack(list(sources))  # [sources, ..., width]
        logits = (self.keys(values) * self.queries[len(sources) - 2]).sum(-1)
        weights = torch.softmax(logits, dim=0)
        return (weights.unsqueeze(-1) * values).sum(0)

    def keys(self, values: Tensor) -> Tensor:
        """Return what the query is multiplied with, of the same shape."""
        if self.key_norm == "none":
            return values
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + EPSILON)
