"""The fast stream where every read sees every source: reads of one block share one pass over the older sources.

Memory traffic is what mixing costs. A tape reads every source once per read; here the reads are cut into blocks of
`BLOCK_READS`, and what the sources before a block add to all its reads is one batched product, worked out when the
block begins. That is possible because the weights of older sources are known by then up to a factor per token and
read: a softmax is completed by the sources written within the block (online softmax). Backward is the mirror image:
the gradients of a block's reads go to all older sources at once when all have come.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from resnas.residual.weighting import Weighting

BLOCK_READS = 8
WORTHWHILE_ELEMENTS = 2**17
"""Of one source (tokens times width): below, sources stay in the cache and a tape's fewer steps are faster."""
CHUNK_ELEMENTS = 2**18
"""Of the gradients of old sources that are worked on at a time: one MiB in float32."""


class DenseWeighting(Weighting):
    """The weights of all reads over all earlier sources."""

    @abstractmethod
    def old_weights(self, reads: range) -> Tensor:
        """Return the weights of sources 0 to `reads.start - 1` in a block's reads, [tokens or 1, reads, old].

        Up to the factor per token and read that `new_weights` returns.
        """

    @abstractmethod
    def new_weights(self, read: int, first: int) -> tuple[Tensor | None, Tensor]:
        """Return that factor [tokens], and the weights of sources `first` to `read - 1`, [tokens or 1, new]."""

    def read_backward(self, read: int, gradient: Tensor, mixed: Tensor) -> None:
        """Take the gradient of a read and its value, both [tokens, width]."""

    @abstractmethod
    def old_backward(self, reads: range, weights: Tensor, gradients: Tensor) -> None:
        """Take the final weights of a block's old sources and their gradients, both [tokens, reads, old]."""

    @abstractmethod
    def new_backward(self, read: int, source: int, weight: Tensor, gradient: Tensor) -> None:
        """Take the weight of a source in a read of its own block and its gradient, [tokens or 1] and [tokens]."""


class DenseTape:
    """All that one forward pass keeps for its backward pass; all sources stand in one buffer."""

    def __init__(self, weighting: DenseWeighting, sublayers: int) -> None:
        self.weighting = weighting
        self.written = 0
        self._reads = sublayers + 1
        self._buffer = torch.empty(0)  # [tokens, sources, width]
        self._partial = torch.empty(0)  # of the current block [tokens, reads, width]
        self._old: dict[int, Tensor] = {}  # first read of a block -> weights [tokens or 1, reads, old], without factors
        self._factors: dict[int, Tensor | None] = {}
        self._new: dict[int, Tensor] = {}  # read -> [tokens or 1, new]
        self._mixed: dict[int, Tensor] = {}
        self._pass = -1
        self._gradient = torch.empty(0)  # of the buffer
        self._reached = 0  # sources that have a gradient from later blocks
        self._read_gradients = torch.empty(0)  # of the block that is walked back [tokens, reads, width]
        self._walked = range(0)  # that block, until its gradients are sent to its old sources
        self._known: set[int] = set()  # its reads that have come

    def append(self, value: Tensor) -> None:
        """Keep a source [tokens, width]."""
        if self.written == 0:
            tokens, width = value.shape
            self._buffer = value.new_empty((tokens, self._reads, width))
            self._partial = value.new_empty((tokens, min(BLOCK_READS, self._reads), width))
        self._buffer[:, self.written] = value
        self.weighting.written(self.written, value)
        self.written += 1

    def read(self) -> Tensor:
        """Return the next read [tokens, width]."""
        read = self.written
        block = self._block(read)
        if read == block.start:
            old = self.weighting.old_weights(block)
            self._old[block.start] = old
            again = self._partial if self._partial.shape[1] == len(block) else None
            self._partial = torch.bmm(self._per_token(old), self._buffer[:, : block.start], out=again)
        factor, new = self.weighting.new_weights(read, block.start)
        self._factors[read], self._new[read] = factor, new
        mixed = self._partial[:, read - block.start]
        mixed = mixed.clone() if factor is None else mixed * factor.to(mixed.dtype).unsqueeze(-1)
        for position in range(new.shape[1]):
            weight = new[:, position : position + 1].to(mixed.dtype)
            mixed.addcmul_(self._buffer[:, block.start + position], weight)
        self._mixed[read] = mixed.detach()
        return mixed

    def read_backward(self, read: int, gradient: Tensor) -> None:
        """Store the gradient of a read."""
        task = torch._C._current_graph_task_id()
        if task != self._pass:  # another backward pass over the same graph starts afresh
            self._pass = task
            self.weighting.start_backward()
            self._gradient = torch.empty_like(self._buffer)
            tokens, _, width = self._buffer.shape
            self._read_gradients = self._buffer.new_empty((tokens, min(BLOCK_READS, self._reads), width))
            self._reached, self._walked, self._known = 0, range(0), set()
        block = self._block(read)
        if block != self._walked:
            self._send_to_old_sources()
            self._walked = block
        self._known.add(read)
        self._read_gradients[:, read - block.start] = gradient
        self.weighting.read_backward(read, gradient, self._mixed[read])

    def source_gradient(self, source: int) -> Tensor:
        """Return the gradient of a source: from later blocks, from later reads of its own, and through the weights."""
        if source < self._walked.start:
            self._send_to_old_sources()
        value = self._buffer[:, source]
        gradient = self._gradient[:, source].clone() if source < self._reached else torch.zeros_like(value)
        for read in sorted(self._known):
            if read > source:
                weight = self._new[read][:, source - self._walked.start]
                of_read = self._read_gradients[:, read - self._walked.start]
                gradient.addcmul_(of_read, weight.to(gradient.dtype).unsqueeze(-1))
                self.weighting.new_backward(read, source, weight, (of_read * value).sum(-1))
        through_weights = self.weighting.source_gradient(source, value)
        return gradient if through_weights is None else gradient.add_(through_weights)

    def rows(self) -> list[Tensor]:
        """Return the weights of the reads so far, [tokens or 1, read, 1]."""
        rows = []
        for read, new in self._new.items():
            block = self._block(read)
            old = self._old[block.start][:, read - block.start]
            factor = self._factors[read]
            old = old if factor is None else old * factor.unsqueeze(-1)
            rows.append(torch.cat((old, new), dim=1).unsqueeze(-1).to(self._buffer.dtype))
        return rows

    def _send_to_old_sources(self) -> None:
        """Add the gradients of the walked block's reads to those of its old sources, a cacheful of tokens at a time."""
        block, known = self._walked, self._known
        if not known:
            return
        self._walked, self._known = range(0), set()
        for read in set(block) - known:  # not on the way to the loss
            self._read_gradients[:, read - block.start] = 0
        old, count = self._final_old(block), block.start
        weights, gradients = self._per_token(old).transpose(1, 2), self._read_gradients[:, : len(block)]
        products = old.new_empty((len(weights), len(block), count), dtype=gradients.dtype)
        tokens = max(1, CHUNK_ELEMENTS // (count * gradients.shape[-1]))
        scratch = gradients.new_empty((min(tokens, len(weights)), count, gradients.shape[-1]))
        for first in range(0, len(weights), tokens):
            part = slice(first, min(first + tokens, len(weights)))
            mine = scratch[: part.stop - part.start]
            torch.bmm(gradients[part], self._buffer[part, :count].transpose(1, 2), out=products[part])
            torch.bmm(weights[part], gradients[part], out=mine)
            if self._reached:
                self._gradient[part, :count] += mine
            else:
                self._gradient[part, :count] = mine
        self._reached = self._reached or count
        self.weighting.old_backward(block, old, products)

    def _block(self, read: int) -> range:
        first = (read - 1) // BLOCK_READS * BLOCK_READS + 1
        return range(first, min(first + BLOCK_READS, self._reads + 1))

    def _final_old(self, block: range) -> Tensor:
        """Return the weights of a block's old sources with their factors; reads that were not made have none."""
        old = self._old[block.start]
        factors = [self._factors.get(read) for read in block]
        if all(factor is None for factor in factors):
            return old
        zero = old.new_zeros(old.shape[0])
        return old * torch.stack([zero if factor is None else factor for factor in factors], dim=1).unsqueeze(-1)

    def _per_token(self, weights: Tensor) -> Tensor:
        """Return weights in the buffer's precision, one matrix per token."""
        tokens = self._buffer.shape[0]
        return weights.to(self._buffer.dtype).expand(tokens, -1, -1).contiguous()
