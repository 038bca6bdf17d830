"""Depth mixing `windowed_depth_attention`: every sublayer of a Transformer attends to the newest sources.

Sources v_0, v_1, … are the embedding and what each sublayer has written: its output, before any sum. Read l has l
sources, v_0 to v_(l-1); reads 1 to S are consumed by the S sublayers, and read S + 1 is the readout. Its pieces are

    the embedding v_0, once it is older than the window, where `keep_embedding`
    the remainder, the sum of all older sources, where `old_sources` is "remainder"; with "drop" they are forgotten
    the newest `window` sources, one by one

and of these pieces p_j

    read_l  = Σ_j α_(l,j) p_j
    α_(l,·) = softmax over j of w_l · k_j
    k_j     = p_j / rms(p_j)      where `key_norm` is "rms", and p_j itself where it is "none"

w_l is a learned query of read l that starts at zero, so that every piece starts with the same weight. A read of one
piece has no query. (After Attention Residuals, arXiv 2603.15031.)

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
WINDOW = 4
KEEP_EMBEDDING = True
OLD_SOURCES = "drop"
KEY_NORM = "rms"
EPSILON = 1e-12
"""Added to mean squares; far below those of sources."""


class DepthMixing(nn.Module):
    """Makes the read of each sublayer from the sources before it.

    Args:
        sublayers: S, two per layer: attention and MLP.
        width: features of a source.
        window: newest sources that a read sees one by one.
        keep_embedding: see the embedding on its own, however old it is.
        old_sources: "drop" or "remainder".
        key_norm: "rms" or "none".
    """

    def __init__(
        self,
        sublayers: int = SUBLAYERS,
        width: int = WIDTH,
        window: int = WINDOW,
        keep_embedding: bool = KEEP_EMBEDDING,
        old_sources: str = OLD_SOURCES,
        key_norm: str = KEY_NORM,
    ) -> None:
        super().__init__()
        self.sublayers = sublayers
        self.width = width
        self.window = window
        self.keep_embedding = keep_embedding
        self.old_sources = old_sources
        self.key_norm = key_norm
        self.queried = [read for read in range(1, sublayers + 2) if len(self.pieces(read)) > 1]
        """The reads of more than one piece."""
        self.queries = nn.Parameter(torch.zeros(len(self.queried), width))

    def pieces(self, read: int) -> list[range]:
        """Return the sources of each piece of a read."""
        newest = range(max(0, read - self.window), read)
        kept = [range(0, 1)] if self.keep_embedding and newest.start > 0 else []
        older = range(len(kept), newest.start)
        remainder = [older] if self.old_sources == "remainder" and len(older) > 0 else []
        return [*kept, *remainder, *(range(source, source + 1) for source in newest)]

    def forward(self, sources: Sequence[Tensor]) -> Tensor:
        """Return read number `len(sources)`, of the shape of a source, [..., width]."""
        read = len(sources)
        sums = [torch.stack([sources[source] for source in piece]).sum(0) for piece in self.pieces(read)]
        if len(sums) == 1:
            return sums[0]
        values = torch.stack(sums)  # [pieces, ..., width]
        logits = (self.keys(values) * self.queries[self.queried.index(read)]).sum(-1)
        weights = torch.softmax(logits, dim=0)
        return (weights.unsqueeze(-1) * values).sum(0)

    def keys(self, values: Tensor) -> Tensor:
        """Return what the query is multiplied with, of the same shape."""
        if self.key_norm == "none":
            return values
        return values * torch.rsqrt(values.square().mean(-1, keepdim=True) + EPSILON)
