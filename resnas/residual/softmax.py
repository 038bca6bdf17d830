"""Softmax weights outside of autograd, for both tapes: logits of all future reads when a source is written, and the way
back from the gradients of the weights to queries and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from resnas.residual.dense import DenseWeighting
from resnas.residual.tape import GroupWeighting, Plan
from resnas.residual.weighting import inverse_root_mean_square, through_norm_

Rows = slice | list[int]


class Keys(NamedTuple):
    """How keys are made of sources."""

    rms: bool
    """Divide by the root mean square."""
    epsilon: float
    """Added to the mean square."""


class SoftmaxWeighting(GroupWeighting):
    """Logits of all future reads when a source is written; softmax when it is read. In float32 at least.

    Logits are kept by (source, read), one number per token, until they are read.
    """

    def __init__(self, queries: Tensor, keys: Keys, plan: Plan, first: int, dtype: torch.dtype) -> None:
        super().__init__([queries])
        self._plan = plan
        self._rms_keys, self._epsilon = keys
        self._first = first
        self._dtype = dtype
        self._precise = torch.promote_types(dtype, torch.float32)
        self._queries = queries.detach().to(self._precise)
        self._query_dtype = queries.dtype
        self._logits: dict[tuple[int, int], Tensor] = {}  # (source, read) -> [tokens]
        self._inverse_rms: list[Tensor] = []
        self._weights: dict[int, Tensor] = {}  # read -> [groups, tokens]
        self._logit_gradients: dict[int, Tensor] = {}  # read -> [groups, tokens]
        self._query_gradients: dict[tuple[str, int], tuple[Rows, Tensor]] = {}

    def written(self, source: int, value: Tensor) -> None:
        """Work out the logits of later reads."""
        inverse_rms = self._inverse_root_mean_square(value)
        self._inverse_rms.append(inverse_rms)
        reads = [read for read, _ in self._plan.readers[source] if read >= self._first]
        if reads:
            logits = self._queries[_rows(reads, self._first)] @ value.to(self._precise).t()  # [reads, tokens]
            if self._rms_keys:
                logits *= inverse_rms
            self._logits.update({(source, read): row for read, row in zip(reads, logits, strict=True)})

    def start_backward(self) -> None:
        """Forget the gradients of an earlier pass."""
        self._query_gradients.clear()
        self._logit_gradients.clear()

    def weights(self, read: int, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the softmax over the groups, each [tokens, 1]."""
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
        """Turn gradients of weights into gradients of logits."""
        if read < self._first:
            return
        weights = self._weights[read]
        gradient = torch.cat(list(gradients)).view(weights.shape).to(self._precise)
        self._logit_gradients[read] = weights * (gradient - (weights * gradient).sum(0))

    def source_gradient(self, source: int, value: Tensor) -> Tensor | None:
        """Return what comes through the logits of later reads [tokens, width]."""
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
        """Return what comes through the logit of the pool [tokens, width]."""
        pool = self._plan.pools.get(read)
        if pool is None or read not in self._logit_gradients:
            return None
        logit_gradients = self._logit_gradients[read][pool[0]].unsqueeze(0)
        inverse_rms = self._inverse_root_mean_square(value)
        return self._key_backward(("pool", read), _rows([read], self._first), logit_gradients, value, inverse_rms)

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradient of the queries."""
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


class DenseSoftmaxWeighting(DenseWeighting):
    """Softmax over all sources, completed block by block; queries are rows [read - 1], that of read 1 being zero.

    What is kept per (read, source) is the logit; a weight is exp(logit - log of the read's total).
    """

    def __init__(self, queries: Tensor, keys: Keys, dtype: torch.dtype, block: int) -> None:
        super().__init__([queries])
        self._block = block
        self._rms_keys, self._epsilon = keys
        self._precise = torch.promote_types(dtype, torch.float32)
        none = queries.new_zeros((1, queries.shape[1]))
        self._queries = torch.cat((none, queries.detach())).to(self._precise)
        self._query_dtype = queries.dtype
        self._query_gradient = torch.zeros_like(self._queries)
        self._logits: list[Tensor] = []  # block -> [reads from the block's first on, sources, tokens]
        self._inverse_rms: list[Tensor] = []
        self._largest = self._total = torch.empty(0)  # of the old sources' logits in a block of reads [reads, tokens]
        self._log_total = torch.empty(0)  # of all reads [reads, tokens]; infinite until the read is made
        self._products = torch.empty(0)  # gradient . value of each read [reads, tokens]
        self._logit_gradients: dict[int, Tensor] = {}  # like _logits

    def written(self, source: int, value: Tensor) -> None:
        """Work out the logits of later reads."""
        value = value.to(self._precise)
        tokens, reads = len(value), len(self._queries) - source
        block, place = divmod(source, self._block)
        if source == 0:
            self._log_total = value.new_full((reads, tokens), torch.inf)
        if place == 0:
            self._logits.append(value.new_empty((reads, min(self._block, reads), tokens)))
        logits = self._queries[source:] @ value.t()
        if self._rms_keys:
            self._inverse_rms.append(inverse_root_mean_square(value, self._epsilon))
            torch.mul(logits, self._inverse_rms[-1], out=self._logits[block][place:, place])
        else:
            self._logits[block][place:, place] = logits

    def old_weights(self, reads: range, blocks: Sequence[range]) -> list[Tensor]:
        """Return exp(logit - largest old logit of the read)."""
        logits = [self._block_logits(reads, sources) for sources in blocks]
        self._largest = torch.stack([part.amax(1) for part in logits]).amax(0)
        weights = [(part - self._largest.unsqueeze(1)).exp_() for part in logits]
        self._total = torch.stack([part.sum(1) for part in weights]).sum(0)
        return weights

    def new_weights(self, read: int, sources: range) -> tuple[Tensor | None, Tensor]:
        """Complete the softmax of a read with the newest sources."""
        logits = self._block_logits(range(read, read + 1), sources).squeeze(0)
        largest = logits.amax(0)
        if sources.start == 0:
            weights = (logits - largest).exp_()
            total, factor = weights.sum(0), None
        else:
            old_largest, old_total = (of_reads[read - 1 - sources.start] for of_reads in (self._largest, self._total))
            largest = torch.maximum(largest, old_largest)
            weights = (logits - largest).exp_()
            shrink = (old_largest - largest).exp_()
            total = weights.sum(0).addcmul_(old_total, shrink)
            factor = shrink / total
        self._log_total[read - 1] = total.log() + largest
        return factor, weights / total

    def weights(self, reads: range, sources: range) -> Tensor:
        """Return exp(logit - log of the read's total)."""
        totals = self._log_total[reads.start - 1 : reads.stop - 1]
        return (self._block_logits(reads, sources) - totals.unsqueeze(1)).exp_()

    def start_backward(self) -> None:
        """Forget the gradients of an earlier pass."""
        self._query_gradient.zero_()
        self._products = torch.zeros_like(self._log_total)
        self._logit_gradients.clear()

    def read_backward(self, read: int, gradient: Tensor, mixed: Tensor) -> None:
        """Keep gradient . value: the mean, by weight, of the gradients of a read's weights."""
        self._products[read - 1] = self.product(gradient, mixed)

    def weights_backward(self, reads: range, sources: range, weights: Tensor, gradients: Tensor) -> None:
        """Turn gradients of weights into gradients of logits."""
        block, place = divmod(sources.start, self._block)
        if block not in self._logit_gradients:
            self._logit_gradients[block] = torch.zeros_like(self._logits[block])
        products = self._products[reads.start - 1 : reads.stop - 1].unsqueeze(1)
        first = reads.start - 1 - block * self._block
        kept = self._logit_gradients[block][first : first + len(reads), place : place + len(sources)]
        torch.mul(gradients.to(self._precise) - products, weights, out=kept)

    def source_gradient(self, source: int, value: Tensor) -> Tensor | None:
        """Return what comes through the logits of later reads [tokens, width]."""
        block, place = divmod(source, self._block)
        if block not in self._logit_gradients:
            return None
        logit_gradients = self._logit_gradients[block][place:, place]  # [later reads, tokens]
        queries, precise = self._queries[source:], value.to(self._precise)
        if not self._rms_keys:
            self._query_gradient[source:].addmm_(logit_gradients, precise)
            return (logit_gradients.t() @ queries).to(value.dtype)
        inverse_rms = self._inverse_rms[source]
        scaled = logit_gradients * inverse_rms
        self._query_gradient[source:].addmm_(scaled, precise)
        along = (logit_gradients * self._logits[block][place:, place]).sum(0) * inverse_rms.square() / value.shape[-1]
        return (scaled.t() @ queries).addcmul_(precise, along.unsqueeze(-1), value=-1).to(value.dtype)

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradient of the queries."""
        return (self._query_gradient[1:].to(self._query_dtype),)

    def _block_logits(self, reads: range, sources: range) -> Tensor:
        """Return a view [reads, sources, tokens]."""
        block, place = divmod(sources.start, self._block)
        first = reads.start - 1 - block * self._block
        return self._logits[block][first : first + len(reads), place : place + len(sources)]
