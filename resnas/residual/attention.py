"""Depth attention: the weights of a read are a softmax over groups of sources (Attention Residuals, arXiv 2603.15031).

logit of group G in read l = w_l · norm(sum of the sources in G), with a learned query w_l per read that starts at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from resnas.residual.dense import WORTHWHILE_ELEMENTS, DenseTape, DenseWeighting
from resnas.residual.rule import PlainStream, Rule, Stream
from resnas.residual.tape import Groups, GroupWeighting, Plan, Tape, TapeStream
from resnas.residual.weighting import inverse_root_mean_square, through_norm_

Rows = slice | list[int]
EPSILON = 1e-12
"""Added to mean squares: far below the square of the smallest mean of sources (see `resnas.model.RMSNorm`)."""


class DepthAttentionRule(Rule):
    """Softmax over the groups of sources of each read."""

    def __init__(
        self, sublayers: int, width: int, *, groups: Callable[[int], Groups], key_norm: str, epsilon: float = EPSILON
    ) -> None:
        super().__init__(sublayers, width)
        self.plan = Plan([list(groups(read)) for read in range(1, sublayers + 2)])
        self.rms_keys = key_norm == "rms"
        self.epsilon = epsilon
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
        if not self.rms_keys:
            return value
        return value * torch.rsqrt(value.square().mean(-1, keepdim=True) + self.epsilon)

    def start(self, embedding: Tensor) -> Stream:
        """Return the fast stream where the groups allow it."""
        first = self._queried[0] if self._queried else self.sublayers + 2
        if not self.plan.supported or self._queried != list(range(first, self.sublayers + 2)):
            return PlainStream(self, embedding)
        if self.complete and embedding.numel() >= self.dense_from_elements:
            return TapeStream(DenseTape(_DenseSoftmaxWeighting(self, embedding.dtype), self.sublayers), embedding)
        return TapeStream(Tape(_SoftmaxWeighting(self, first, embedding.dtype), self.plan), embedding)


class _SoftmaxWeighting(GroupWeighting):
    """Logits of all future reads when a source is written; softmax when it is read. In float32 at least.

    Logits are kept by (source, read), one number per token, until they are read.
    """

    def __init__(self, rule: DepthAttentionRule, first: int, dtype: torch.dtype) -> None:
        super().__init__([rule.queries])
        self._plan = rule.plan
        self._rms_keys, self._epsilon = rule.rms_keys, rule.epsilon
        self._first = first
        self._dtype = dtype
        self._precise = torch.promote_types(dtype, torch.float32)
        self._queries = rule.queries.detach().to(self._precise)
        self._query_dtype = rule.queries.dtype
        self._logits: dict[tuple[int, int], Tensor] = {}  # (source, read) -> [tokens]
        self._inverse_rms: list[Tensor] = []
        self._weights: dict[int, Tensor] = {}  # read -> [groups, tokens]
        self._logit_gradients: dict[int, Tensor] = {}  # read -> [groups, tokens]
        self._query_gradients: dict[tuple[str, int], tuple[Rows, Tensor]] = {}

    def written(self, source: int, value: Tensor) -> None:
        inverse_rms = self._inverse_root_mean_square(value)
        self._inverse_rms.append(inverse_rms)
        reads = [read for read, _ in self._plan.readers[source] if read >= self._first]
        if reads:
            logits = self._queries[_rows(reads, self._first)] @ value.to(self._precise).t()  # [reads, tokens]
            if self._rms_keys:
                logits *= inverse_rms
            self._logits.update({(source, read): row for read, row in zip(reads, logits, strict=True)})

    def start_backward(self) -> None:
        self._query_gradients.clear()
        self._logit_gradients.clear()

    def weights(self, read: int, values: Sequence[Tensor]) -> list[Tensor]:
        if read < self._first:
            return [values[0].new_ones((1, 1))]
        logits = [
            self._logits.pop((group.start, read)) if len(group) == 1 else self._pool_logit(read, value)
            for group, value in zip(self._plan.groups[read - 1], values, strict=True)
        ]
        weights = torch.softmax(torch.cat(logits).view(len(logits), -1), dim=0)
        self._weights[read] = weights
        return list(weights.to(self._dtype).unsqueeze(-1).unbind(0))

    def read_backward(self, read: int, gradients: Sequence[Tensor]) -> None:
        if read < self._first:
            return
        weights = self._weights[read]
        gradient = torch.cat(list(gradients)).view(weights.shape).to(self._precise)
        self._logit_gradients[read] = weights * (gradient - (weights * gradient).sum(0))

    def source_gradient(self, source: int, value: Tensor) -> Tensor | None:
        known = [(read, position) for read, position in self._plan.readers[source] if read in self._logit_gradients]
        if not known:
            return None
        reads = [read for read, _ in known]
        rows = [self._logit_gradients[read][position] for read, position in known]
        logit_gradients = torch.cat(rows).view(len(rows), -1)  # [reads, tokens]
        return self._key_backward(
            ("source", source), _rows(reads, self._first), logit_gradients, value, self._inverse_rms[source]
        )

    def pool_gradient(self, read: int, value: Tensor) -> Tensor | None:
        pool = self._plan.pool(read)
        if pool is None or read not in self._logit_gradients:
            return None
        logit_gradients = self._logit_gradients[read][pool[0]].unsqueeze(0)
        inverse_rms = self._inverse_root_mean_square(value)
        return self._key_backward(("pool", read), _rows([read], self._first), logit_gradients, value, inverse_rms)

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        gradient = torch.zeros_like(self._queries)
        for rows, part in self._query_gradients.values():
            gradient[rows] += part
        return (gradient.to(self._query_dtype),)

    def _key_backward(
        self,
        name: tuple[str, int],
        rows: slice | list[int],
        logit_gradients: Tensor,
        value: Tensor,
        inverse_rms: Tensor,
    ) -> Tensor:
        """Keep the gradient of the queries, return that of the value, for logits = queries @ norm(value)."""
        value = value.to(self._precise)
        queries = self._queries[rows]
        scaled = logit_gradients * inverse_rms if self._rms_keys else logit_gradients
        self._query_gradients[name] = (rows, scaled @ value)
        gradient = scaled.t() @ queries
        if self._rms_keys:
            through_norm_(gradient, value, inverse_rms)
        return gradient.to(self._dtype)

    def _pool_logit(self, read: int, value: Tensor) -> Tensor:
        logit = value.to(self._precise) @ self._queries[read - self._first]
        return logit * self._inverse_root_mean_square(value) if self._rms_keys else logit

    def _inverse_root_mean_square(self, value: Tensor) -> Tensor:
        """Return 1 / rms per token [tokens]."""
        return inverse_root_mean_square(value.to(self._precise), self._epsilon)


def _rows(reads: Sequence[int], first: int) -> Rows:
    """Return the rows of a table, whose row 0 is read `first`, that belong to reads in rising order.

    Reads that do not reach the loss leave gaps in a backward pass; without gaps a slice saves the copy.
    """
    if reads[-1] - reads[0] + 1 == len(reads):
        return slice(reads[0] - first, reads[-1] + 1 - first)
    return [read - first for read in reads]


class _DenseSoftmaxWeighting(DenseWeighting):
    """Softmax over all sources, completed block by block; queries are rows [read - 1], that of read 1 being zero."""

    def __init__(self, rule: DepthAttentionRule, dtype: torch.dtype) -> None:
        super().__init__([rule.queries])
        self._rms_keys, self._epsilon = rule.rms_keys, rule.epsilon
        self._precise = torch.promote_types(dtype, torch.float32)
        queries = rule.queries.detach().to(self._precise)
        self._queries = torch.cat((queries.new_zeros((1, rule.width)), queries))
        self._query_dtype = rule.queries.dtype
        self._query_gradient = torch.zeros_like(self._queries)
        self._logits: list[Tensor] = []  # of source i in reads i + 1 to S + 1 [tokens, reads]
        self._inverse_rms: list[Tensor] = []
        self._largest = self._total = torch.empty(0)  # of the current block's old sources [tokens, reads]
        self._products: dict[int, Tensor] = {}  # read -> gradient . value [tokens]
        self._old: list[tuple[range, Tensor]] = []  # block -> logit gradients [tokens, reads, old], last block first
        self._new: dict[int, dict[int, Tensor]] = {}  # source -> read of its block -> logit gradient [tokens]

    def written(self, source: int, value: Tensor) -> None:
        value = value.to(self._precise)
        logits = value @ self._queries[source:].t()
        if self._rms_keys:
            self._inverse_rms.append(inverse_root_mean_square(value, self._epsilon))
            logits *= self._inverse_rms[-1].unsqueeze(-1)
        self._logits.append(logits)

    def old_weights(self, reads: range) -> Tensor:
        columns = [
            logits[:, reads.start - 1 - source : reads.stop - 1 - source]
            for source, logits in enumerate(self._logits[: reads.start])
        ]
        logits = torch.stack(columns, dim=-1)
        self._largest = logits.amax(-1)
        weights = logits.sub_(self._largest.unsqueeze(-1)).exp_()
        self._total = weights.sum(-1)
        return weights

    def new_weights(self, read: int, first: int) -> tuple[Tensor | None, Tensor]:
        position = read - first
        largest, total = self._largest[:, position], self._total[:, position]
        if read == first:
            return 1 / total, largest.new_empty((len(largest), 0))
        logits = torch.stack([self._logits[source][:, read - 1 - source] for source in range(first, read)], dim=-1)
        new_largest = torch.maximum(largest, logits.amax(-1))
        weights = (logits - new_largest.unsqueeze(-1)).exp()
        shrink = (largest - new_largest).exp()
        whole = total * shrink + weights.sum(-1)
        return shrink / whole, weights / whole.unsqueeze(-1)

    def start_backward(self) -> None:
        self._query_gradient.zero_()
        self._products.clear()
        self._old.clear()
        self._new.clear()

    def read_backward(self, read: int, gradient: Tensor, mixed: Tensor) -> None:
        self._products[read] = (gradient * mixed).sum(-1).to(self._precise)

    def old_backward(self, reads: range, weights: Tensor, gradients: Tensor) -> None:
        zero = weights.new_zeros(len(weights))
        products = torch.stack([self._products.get(read, zero) for read in reads], dim=1)
        self._old.append((reads, weights * (gradients.to(self._precise) - products.unsqueeze(-1))))

    def new_backward(self, read: int, source: int, weight: Tensor, gradient: Tensor) -> None:
        product = self._products.get(read)
        change = torch.zeros_like(weight) if product is None else weight * (gradient.to(self._precise) - product)
        self._new.setdefault(source, {})[read] = change

    def source_gradient(self, source: int, value: Tensor) -> Tensor | None:
        within = self._new.get(source, {})
        later = [(reads, gradients[:, :, source]) for reads, gradients in reversed(self._old) if source < reads.start]
        reads = [*within, *(read for of_block, _ in later for read in of_block)]
        if not reads:
            return None
        columns = [gradient.unsqueeze(1) for gradient in within.values()]
        logit_gradients = torch.cat((*columns, *(gradients for _, gradients in later)), dim=1)  # [tokens, reads]
        rows = _rows(reads, 1)
        precise = value.to(self._precise)
        if self._rms_keys:
            logit_gradients = logit_gradients * self._inverse_rms[source].unsqueeze(-1)
        self._query_gradient[rows] += logit_gradients.t() @ precise
        gradient = logit_gradients @ self._queries[rows]
        if self._rms_keys:
            through_norm_(gradient, precise, self._inverse_rms[source])
        return gradient.to(value.dtype)

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        return (self._query_gradient[1:].to(self._query_dtype),)
