"""Rules whose weights do not depend on the token: all ones (`fixed`), and learned numbers (`scalar_learned`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from resnas.residual.decoding import DecodingStream, decodes
from resnas.residual.dense import WORTHWHILE_ELEMENTS, DenseTape, DenseWeighting
from resnas.residual.rule import Rule, Stream
from resnas.residual.stream import TapeStream
from resnas.residual.tape import GroupWeighting, Plan, Tape


class FixedRule(Rule):
    """M is all ones: the PreNorm residual stream."""

    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return ones [1, read, 1]."""
        return sources[0].new_ones((1, read, 1))

    def start(self, embedding: Tensor) -> Stream:
        """Return a running sum."""
        return SumStream(embedding)


class SumStream(Stream):
    """A running sum of all sources."""

    def __init__(self, embedding: Tensor) -> None:
        self._sum = embedding
        self._reads = 0

    def read(self) -> Tensor:
        """Return the sum so far."""
        self._reads += 1
        return self._sum

    def write(self, source: Tensor) -> None:
        """Add the source."""
        self._sum = self._sum + source

    def mixing_matrix(self) -> list[Tensor]:
        """Return ones."""
        return [self._sum.new_ones((1, read, 1)) for read in range(1, self._reads + 1)]


class ScalarRule(Rule):
    """One learned number per read and source (and feature, where per channel), starting at one.

    The lower triangle is stored as a vector: read l owns the l entries from l (l - 1) / 2 on.
    """

    def __init__(self, sublayers: int, width: int, *, per_channel: bool = False) -> None:
        super().__init__(sublayers, width)
        entries = (sublayers + 1) * (sublayers + 2) // 2
        self._plan = Plan([[range(source, source + 1) for source in range(read)] for read in range(1, sublayers + 2)])
        self.dense_from_elements = WORTHWHILE_ELEMENTS
        self.scalars = nn.Parameter(torch.ones(entries, width if per_channel else 1))

    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return the numbers of this read [1, read, width or 1]."""
        return self.scalars[_entries(read)].unsqueeze(0)

    def start(self, embedding: Tensor) -> Stream:
        """Return the fast stream."""
        if self.scalars.shape[1] == 1 and decodes(embedding):
            return DecodingStream(_DenseScalarWeighting(self.scalars), self.sublayers, embedding)
        if self.scalars.shape[1] == 1 and embedding.numel() >= self.dense_from_elements:
            return TapeStream(DenseTape(_DenseScalarWeighting(self.scalars), self.sublayers), embedding)
        return TapeStream(Tape(_ScalarWeighting(self.scalars, embedding.dtype), self._plan), embedding)


def _entries(read: int) -> slice:
    first = read * (read - 1) // 2
    return slice(first, first + read)


class _ScalarWeighting(GroupWeighting):
    """Rows of the table of scalars."""

    def __init__(self, scalars: Tensor, dtype: torch.dtype) -> None:
        super().__init__([scalars])
        self._table = scalars.detach().to(dtype)
        self._gradient = torch.zeros_like(scalars)

    def start_backward(self) -> None:
        self._gradient = torch.zeros_like(self._gradient)

    def weights(self, read: int, values: Sequence[Tensor]) -> list[Tensor]:
        return list(self._table[_entries(read)].unsqueeze(1).unbind(0))

    def product(self, gradient: Tensor, value: Tensor) -> Tensor:
        per_channel = self._table.shape[1] > 1
        return (gradient * value).sum(0) if per_channel else _summed_product(gradient, value)

    def read_backward(self, read: int, gradients: Sequence[Tensor]) -> None:
        self._gradient[_entries(read)] = torch.stack(list(gradients)).to(self._gradient.dtype)

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        return (self._gradient,)


class _DenseScalarWeighting(DenseWeighting):
    """The table of scalars, one per read and source, as a square matrix [read - 1, source]."""

    def __init__(self, scalars: Tensor) -> None:
        super().__init__([scalars])
        reads = _reads_in(len(scalars))
        self._lower = torch.tril_indices(reads, reads, device=scalars.device).unbind(0)
        self._matrix = scalars.new_zeros((reads, reads))
        self._matrix[self._lower] = scalars.detach().squeeze(1)
        self._gradient = torch.zeros_like(self._matrix)

    def old_weights(self, reads: range, blocks: Sequence[range]) -> list[Tensor]:
        return [self.weights(reads, sources) for sources in blocks]

    def new_weights(self, read: int, sources: range) -> tuple[Tensor | None, Tensor]:
        return None, self.weights(range(read, read + 1), sources).squeeze(0)

    def weights(self, reads: range, sources: range) -> Tensor:
        return _block(self._matrix, reads, sources).unsqueeze(-1)

    def start_backward(self) -> None:
        self._gradient = torch.zeros_like(self._matrix)

    def product(self, gradient: Tensor, value: Tensor) -> Tensor:
        return _summed_product(gradient, value)

    def weights_backward(self, reads: range, sources: range, weights: Tensor, gradients: Tensor) -> None:
        _block(self._gradient, reads, sources).copy_(gradients.sum(-1))

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        return (self._gradient[self._lower].unsqueeze(1),)


def _summed_product(gradient: Tensor, value: Tensor) -> Tensor:
    """Return the sum over tokens and features of gradient times value [1]."""
    return torch.dot(gradient.flatten(), value.flatten()).unsqueeze(0)


def _block(matrix: Tensor, reads: range, sources: range) -> Tensor:
    return matrix[reads.start - 1 : reads.stop - 1, sources.start : sources.stop]


def _reads_in(entries: int) -> int:
    """Return n where n (n + 1) / 2 = entries."""
    return (math.isqrt(8 * entries + 1) - 1) // 2
