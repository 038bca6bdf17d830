"""The fast stream where every read sees every source: a block of reads and a block of sources at a time.

Memory traffic is what mixing costs. A tape goes through every source once per read; here older sources stand in blocks
[tokens, `BLOCK`, width], and what one block of sources adds to one block of later reads is a single batched product.
That is possible because the weights of older sources are known, up to a factor per token and read, when a block of
reads begins: a softmax is completed by the sources written since (online softmax). Backward is the mirror image: when
the walk comes to a block of sources, the gradients of all later blocks of reads are known, and what they add is
gathered in one go. Within a block, reads and sources take turns, and are mixed one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from resnas.residual.weighting import Weighting

BLOCK = 8
"""Sources, and reads, of a block; a read goes through half a block of sources one by one."""
WORTHWHILE_ELEMENTS = 2**17
"""Of one source (tokens times width): below, sources stay in the cache and a tape's fewer steps are faster."""
CHUNK_ELEMENTS = 2**17
"""Of a block that is worked on at a time, so that it stays in the cache: half a MiB in float32."""


class DenseWeighting(Weighting):
    """The weights of all reads over all earlier sources; T is the number of tokens, or 1 for weights that are static.

    `sources` are always of one block.
    """

    @abstractmethod
    def old_weights(self, reads: range, blocks: Sequence[range]) -> list[Tensor]:
        """Return the weights of all sources before a block of reads, a tensor [reads, sources, T] per block of sources.

        Up to the factor per token and read that `new_weights` returns.
        """

    @abstractmethod
    def new_weights(self, read: int, sources: range) -> tuple[Tensor | None, Tensor]:
        """Return that factor [T], and the weights [sources, T] of the sources since."""

    @abstractmethod
    def weights(self, reads: range, sources: range) -> Tensor:
        """Return the final weights of sources in later reads that have been made, [reads, sources, T]."""

    def read_backward(self, read: int, gradient: Tensor, mixed: Tensor) -> None:
        """Take the gradient of a read and its value, both [tokens, width]."""

    @abstractmethod
    def weights_backward(self, reads: range, sources: range, weights: Tensor, gradients: Tensor) -> None:
        """Take weights as `weights` returned them, and their gradients [reads, sources, tokens]."""


class DenseTape:
    """All that one forward pass keeps for its backward pass."""

    def __init__(self, weighting: DenseWeighting, sublayers: int) -> None:
        self.weighting = weighting
        self.written = 0
        self._count = sublayers + 1  # of sources, and of reads
        self._values: list[Tensor] = []  # block -> [tokens, sources, width]
        self._newest: list[Tensor] = []  # sources since, each [tokens, width]
        self._old = torch.empty(0)  # what older blocks add to the reads of this one, no factors [tokens, reads, width]
        self._mixed: list[Tensor] = []
        self._walked = -1  # block that the backward pass is in
        self._gradients: dict[int, Tensor] = {}  # block behind -> gradients of its reads [tokens, reads, width]
        self._newest_gradients: list[Tensor] = []  # of the reads of the walked block, the last one first
        self._walked_values = torch.empty(0)  # [sources, tokens, width]
        self._gathered = torch.empty(0)  # what later blocks add to the walked block's sources [sources, tokens, width]

    def append(self, value: Tensor) -> None:
        """Keep a source [tokens, width]."""
        if self._newest and self.written % BLOCK == 0:
            self._values.append(torch.stack(self._newest, dim=1))
            self._newest.clear()
        self._newest.append(value)
        self.weighting.written(self.written, value)
        self.written += 1

    def read(self) -> Tensor:
        """Return the next read [tokens, width]."""
        read, value = self.written, self._newest[0]
        block, place = divmod(read - 1, BLOCK)
        if place == 0 and block > 0:
            self._old = self._mix_old(block)
        factor, weights = self.weighting.new_weights(read, range(block * BLOCK, read))
        first_weight, *other_weights = weights.to(value.dtype).unsqueeze(-1).unbind(0)
        if block == 0:
            mixed = value * first_weight
        elif factor is None:
            mixed = torch.addcmul(self._old[:, place], value, first_weight)
        else:
            mixed = (self._old[:, place] * factor.to(value.dtype).unsqueeze(-1)).addcmul_(value, first_weight)
        for newest, weight in zip(self._newest[1:], other_weights, strict=True):
            mixed.addcmul_(newest, weight)
        self._mixed.append(mixed.detach())
        return mixed

    def start_backward(self) -> None:
        """Forget what an earlier backward pass has left, and put the newest sources into a block of their own."""
        self.weighting.start_backward()
        self._walked = -1
        self._gradients.clear()
        self._newest_gradients.clear()
        self._old = torch.empty(0)
        del self._values[(self.written - 1) // BLOCK :]
        self._values.append(torch.stack(self._newest, dim=1))

    def read_backward(self, read: int, gradient: Tensor) -> None:
        """Store the gradient of a read."""
        self._walk_to((read - 1) // BLOCK)
        self._expect_gradients_after(read)
        self._newest_gradients.append(gradient)
        self.weighting.read_backward(read, gradient, self._mixed[read - 1])

    def source_gradient(self, source: int) -> Tensor:
        """Return the gradient of a source: from later blocks, from later reads of its own, and through the weights."""
        block, place = divmod(source, BLOCK)
        self._walk_to(block)
        self._expect_gradients_after(source)
        value, gradient = self._walked_values[place], self._gathered[place]
        reads, sources = range(source + 1, self._reads(block).stop), range(source, source + 1)
        weights = self.weighting.weights(reads, sources)
        products = []
        for of_read, weight in zip(self._newest_gradients, weights.to(value.dtype).flip(0).unbind(0), strict=True):
            gradient.addcmul_(of_read, weight.view(-1, 1))
            products.append(self.weighting.product(of_read, value))
        self.weighting.weights_backward(reads, sources, weights, torch.stack(products[::-1]).unsqueeze(1))
        through_weights = self.weighting.source_gradient(source, value)
        return gradient if through_weights is None else gradient.add_(through_weights)

    def rows(self) -> list[Tensor]:
        """Return the weights of the reads so far, [tokens or 1, read, 1]."""
        dtype = self._newest[0].dtype
        rows = []
        for read in range(1, len(self._mixed) + 1):
            blocks = [self._sources(block) for block in range((read - 1) // BLOCK + 1)]
            parts = [
                self.weighting.weights(range(read, read + 1), range(sources.start, min(sources.stop, read)))
                for sources in blocks
            ]
            rows.append(torch.cat(parts, dim=1).permute(2, 1, 0).to(dtype))
        return rows

    def _mix_old(self, block: int) -> Tensor:
        """Return what all older blocks add to the reads of a block [tokens, reads, width], up to a factor."""
        reads, older = self._reads(block), [self._sources(other) for other in range(block)]
        weights = [self._per_token(part) for part in self.weighting.old_weights(reads, older)]
        tokens, _, width = self._values[0].shape
        shape = (tokens, len(reads), width)
        mixed = self._old if self._old.shape == shape else self._values[0].new_empty(shape)
        for part in self._chunks():
            torch.bmm(weights[0][part], self._values[0][part], out=mixed[part])
            for of_block, values in zip(weights[1:], self._values[1:], strict=True):
                mixed[part].baddbmm_(of_block[part], values[part])
        return mixed

    def _walk_to(self, block: int) -> None:
        """Enter a block: keep the gradients of the block before, and gather what is known of this one's sources."""
        if block == self._walked:
            return
        if self._newest_gradients:
            self._expect_gradients_after(self._sources(self._walked).start)
            self._gradients[self._walked] = torch.stack(self._newest_gradients[::-1], dim=1)
            self._newest_gradients.clear()
        self._walked = block
        self._walked_values = self._values[block].transpose(0, 1).contiguous()
        self._gathered = self._gather(block).transpose(0, 1).contiguous()

    def _expect_gradients_after(self, read: int) -> None:
        """Put zeros where later reads of the walked block have no gradient: they do not reach the loss."""
        for _ in range(self._reads(self._walked).stop - 1 - read - len(self._newest_gradients)):
            self._newest_gradients.append(torch.zeros_like(self._newest[0]))

    def _gather(self, block: int) -> Tensor:
        """Return what the reads of later blocks add to the gradients of a block's sources [tokens, sources, width]."""
        values, sources, reads = self._values[block], self._sources(block), [self._reads(b) for b in self._gradients]
        if not reads:
            return torch.zeros_like(values)
        weights = [self.weighting.weights(of_block, sources) for of_block in reads]
        matrices = [self._per_token(part).transpose(1, 2) for part in weights]
        products = [values.new_empty((len(values), len(of_block), len(sources))) for of_block in reads]
        gathered = torch.empty_like(values)
        for part in self._chunks():
            for index, gradients in enumerate(self._gradients.values()):
                torch.bmm(gradients[part], values[part].transpose(1, 2), out=products[index][part])
                if index == 0:
                    torch.bmm(matrices[index][part], gradients[part], out=gathered[part])
                else:
                    gathered[part].baddbmm_(matrices[index][part], gradients[part])
        for of_block, final, product in zip(reads, weights, products, strict=True):
            self.weighting.weights_backward(of_block, sources, final, product.permute(1, 2, 0))
        return gathered

    def _per_token(self, weights: Tensor) -> Tensor:
        """Return weights [reads, sources, T] as a matrix per token [tokens, reads, sources], in the sources'
        precision."""
        matrices = weights.permute(2, 0, 1).to(self._newest[0].dtype).contiguous()
        return matrices.expand(len(self._newest[0]), -1, -1)

    def _sources(self, block: int) -> range:
        return range(block * BLOCK, min((block + 1) * BLOCK, self._count))

    def _reads(self, block: int) -> range:
        sources = self._sources(block)
        return range(sources.start + 1, sources.stop + 1)

    def _chunks(self) -> Iterator[slice]:
        """Yield slices of tokens whose block of sources fits the cache."""
        tokens, width = self._newest[0].shape
        step = max(1, CHUNK_ELEMENTS // (BLOCK * width))
        return (slice(first, min(first + step, tokens)) for first in range(0, tokens, step))
