"""What the streams of resnas are compared with: a topology's definition, and depth attention on stacked sources."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from resnas.residual.attention import EPSILON
from resnas.residual.rule import PlainStream, Rule, Stream


class Definition(Rule):
    """A rule whose stream is always the plain definition."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.sublayers, rule.width)
        self.rule = rule

    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return the rule's row."""
        return self.rule.row(read, sources)

    def start(self, embedding: Tensor) -> Stream:
        """Return the plain stream."""
        return PlainStream(self, embedding)


class StackedAttention(Rule):
    """Full depth attention in the straightforward way: stack all sources at every read, norm, softmax, weighted sum."""

    def __init__(self, sublayers: int, width: int) -> None:
        super().__init__(sublayers, width)
        self.queries = nn.Parameter(torch.zeros(sublayers + 1, width))

    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return the softmax weights [tokens, read, 1]."""
        return self.weights(read, torch.stack(list(sources))).permute(1, 0).unsqueeze(-1)

    def weights(self, read: int, values: Tensor) -> Tensor:
        """Return the softmax weights [read, ...] of stacked values [read, ..., width]."""
        keys = functional.rms_norm(values, (self.width,), eps=EPSILON)
        return torch.einsum("d,l...d->l...", self.queries[read - 1], keys).softmax(0)

    def start(self, embedding: Tensor) -> Stream:
        """Return the stacking stream."""
        return StackedStream(self, embedding)


class StackedStream(Stream):
    """Keeps a list of sources and stacks it at every read."""

    def __init__(self, rule: StackedAttention, embedding: Tensor) -> None:
        self._rule = rule
        self._sources = [embedding]
        self._rows: list[Tensor] = []

    def read(self) -> Tensor:
        """Mix the stacked sources."""
        values = torch.stack(self._sources)
        weights = self._rule.weights(len(self._sources), values)
        self._rows.append(weights.detach().flatten(1).t().unsqueeze(-1))
        return torch.einsum("l...,l...d->...d", weights, values)

    def write(self, source: Tensor) -> None:
        """Keep the source."""
        self._sources.append(source)

    def mixing_matrix(self) -> list[Tensor]:
        """Return the weights of the reads so far."""
        return self._rows
