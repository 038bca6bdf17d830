"""Depth attention: the weights of a read are a softmax over groups of sources (Attention Residuals, arXiv 2603.15031).

logit of group G in read l = w_l · norm(sum of the sources in G), with a learned query w_l per read that starts at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from resnas.residual.decoding import DecodingStream, decodes
from resnas.residual.dense import BLOCK, WORTHWHILE_ELEMENTS, DenseTape
from resnas.residual.rule import PlainStream, Rule, Stream
from resnas.residual.softmax import DenseSoftmaxWeighting, Keys, SoftmaxWeighting
from resnas.residual.stream import TapeStream
from resnas.residual.tape import Groups, Plan, Tape

EPSILON = 1e-12
"""Added to mean squares: far below the square of the smallest mean of sources (see `resnas.model.RMSNorm`)."""


class DepthAttentionRule(Rule):
    """Softmax over the groups of sources of each read."""

    def __init__(
        self, sublayers: int, width: int, *, groups: Callable[[int], Groups], key_norm: str, epsilon: float = EPSILON
    ) -> None:
        super().__init__(sublayers, width)
        self.plan = Plan([list(groups(read)) for read in range(1, sublayers + 2)])
        self.keys = Keys(key_norm == "rms", epsilon)
        self._queried = [read for read, of_read in enumerate(self.plan.groups, start=1) if len(of_read) > 1]
        self.complete = all(
            list(of_read) == [range(source, source + 1) for source in range(read)]
            for read, of_read in enumerate(self.plan.groups, start=1)
        )
        """Does every read see every source on its own?"""
        self.dense_from_elements = WORTHWHILE_ELEMENTS
        self.queries = nn.Parameter(torch.zeros(len(self._queried), width))

    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return the softmax weights [tokens, read, 1]; the sources of a group share its weight, others have none."""
        groups = self.plan.groups[read - 1]
        tokens = sources[0].shape[0]
        if read in self._queried:
            query = self.queries[self._queried.index(read)]
            keys = [self._key(sum((sources[i] for i in group[1:]), sources[group.start])) for group in groups]
            weights = torch.softmax(torch.stack([(key * query).sum(-1) for key in keys], dim=-1), dim=-1)
        else:
            weights = sources[0].new_ones((tokens, 1))
        row = sources[0].new_zeros((tokens, read))
        for index, group in enumerate(groups):
            row[:, group.start : group.stop] = weights[:, index : index + 1]
        return row.unsqueeze(-1)

    def _key(self, value: Tensor) -> Tensor:
        if not self.keys.rms:
            return value
        return value * torch.rsqrt(value.square().mean(-1, keepdim=True) + self.keys.epsilon)

    def start(self, embedding: Tensor) -> Stream:
        """Return the fast stream where the groups allow it."""
        first = self._queried[0] if self._queried else self.sublayers + 2
        if not self.plan.supported or self._queried != list(range(first, self.sublayers + 2)):
            return PlainStream(self, embedding)
        if self.complete and decodes(embedding):
            weighting = DenseSoftmaxWeighting(self.queries, self.keys, embedding.dtype, block=self.sublayers + 1)
            return DecodingStream(weighting, self.sublayers, embedding)
        if self.complete and embedding.numel() >= self.dense_from_elements:
            weighting = DenseSoftmaxWeighting(self.queries, self.keys, embedding.dtype, block=BLOCK)
            return TapeStream(DenseTape(weighting, self.sublayers), embedding)
        of_groups = SoftmaxWeighting(self.queries, self.keys, self.plan, first, embedding.dtype)
        return TapeStream(Tape(of_groups, self.plan), embedding)
