"""The stream of a few tokens without gradients, as in generation: one small product per read, nothing kept for later.

A tape has a step per source and read, which costs little where a source is large; with one token, the steps themselves
are what costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from resnas.residual.dense import DenseWeighting
from resnas.residual.rule import Stream
from resnas.residual.stream import full_precision

FEW_TOKENS = 16


def decodes(embedding: Tensor) -> bool:
    """Is this a forward pass without gradients over a few tokens?"""
    return not torch.is_grad_enabled() and embedding.numel() <= FEW_TOKENS * embedding.shape[-1]


class DecodingStream(Stream):
    """All sources in one buffer [tokens, sources, width]; to the weighting they are one block."""

    def __init__(self, weighting: DenseWeighting, sublayers: int, embedding: Tensor) -> None:
        self._weighting = weighting
        self._shape = embedding.shape
        flat = embedding.flatten(0, -2)
        self._buffer = flat.new_empty((flat.shape[0], sublayers + 1, flat.shape[1]))
        self._written = self._reads = 0
        self._append(flat)

    def read(self) -> Tensor:
        """Return the mixture of the sources so far."""
        self._reads = self._written
        with full_precision(self._buffer.device):
            _, weights = self._weighting.new_weights(self._written, range(self._written))
            matrices = weights.t().unsqueeze(1).to(self._buffer.dtype).expand(len(self._buffer), -1, -1)
            return torch.bmm(matrices, self._buffer[:, : self._written]).view(self._shape)

    def write(self, source: Tensor) -> None:
        """Append a source."""
        self._append(source.flatten(0, -2).to(self._buffer.dtype))

    def mixing_matrix(self) -> list[Tensor]:
        """Return the weights of the reads so far."""
        return [
            self._weighting.weights(range(read, read + 1), range(read)).permute(2, 1, 0).to(self._buffer.dtype)
            for read in range(1, self._reads + 1)
        ]

    def _append(self, flat: Tensor) -> None:
        with full_precision(flat.device):
            self._buffer[:, self._written] = flat
            self._weighting.written(self._written, flat)
        self._written += 1
