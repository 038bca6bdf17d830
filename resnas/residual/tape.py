"""The exact, fast stream for rules whose weights are softmax or static: values once, gradients gathered in one sweep.

Plain autograd would keep a weighted copy of every source for every read. Here a forward pass keeps each source once,
in a `Tape` that lives as long as its graph (see `stream`), and gathers the whole gradient of a source when all reads of
it have come. The weights themselves come from a `GroupWeighting`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from resnas.residual.weighting import Weighting

Groups = Sequence[range]


class Plan:
    """Who reads whom, worked out once per rule.

    Attributes:
        groups: groups[l - 1] are the groups of read l.
        readers: readers[i] are (read, position of the group) for each read that sees source i on its own, in order.
        pooled_from: the first read whose pool holds source i; None where no pool ever does.
        pools: read -> position and range of its pooled group.
        supported: can a tape serve these groups? At most one pool per read, growing by one source from read to read
            once it is there; and each source seen on its own by reads that follow one another.
    """

    def __init__(self, groups: Sequence[Groups]) -> None:
        self.groups = groups
        self.readers: list[list[tuple[int, int]]] = [[] for _ in groups]
        self.pooled_from: list[int | None] = [None] * len(groups)
        self.pools: dict[int, tuple[int, range]] = {}
        for read, of_read in enumerate(groups, start=1):
            for position, group in enumerate(of_read):
                if len(group) == 1:
                    self.readers[group.start].append((read, position))
                else:
                    self.pools[read] = position, group
                for source in group if len(group) > 1 else ():
                    self.pooled_from[source] = self.pooled_from[source] or read
        self.supported = self._pools_grow() and all(
            reads[-1][0] - reads[0][0] + 1 == len(reads) for reads in self.readers if reads
        )

    def _pools_grow(self) -> bool:
        before: range | None = None
        for of_read in self.groups:
            pools = [group for group in of_read if len(group) > 1]
            if len(pools) > 1 or (before and pools != [range(before.start, before.stop + 1)]):
                return False
            before = pools[0] if pools else None
        return True


class GroupWeighting(Weighting):
    """The weights of reads over groups of sources."""

    @abstractmethod
    def weights(self, read: int, values: Sequence[Tensor]) -> list[Tensor]:
        """Return a weight per group of the read, each broadcastable to [tokens, width]; `values` are the groups'
        values."""

    @abstractmethod
    def read_backward(self, read: int, gradients: Sequence[Tensor]) -> None:
        """Take the gradients of the weights of a read, as `product` returned them."""

    def pool_gradient(self, read: int, value: Tensor) -> Tensor | None:
        """Return what flows into the pooled group of a read through its weight."""
        return None


class Tape:
    """All that one forward pass keeps for its backward pass."""

    def __init__(self, weighting: GroupWeighting, plan: Plan) -> None:
        self.weighting = weighting
        self.plan = plan
        self.sources: list[Tensor] = []
        self.pools: dict[int, Tensor] = {}  # read -> value of its pooled group
        self.weights: list[list[Tensor]] = []
        self._gradients: dict[int, Tensor] = {}  # read -> its incoming gradient
        self._pool_gradients: dict[int, Tensor] = {}  # read -> summed gradient of the pools from this read on

    def append(self, value: Tensor) -> None:
        """Keep a source [tokens, width]."""
        self.weighting.written(len(self.sources), value)
        self.sources.append(value)

    def read(self) -> Tensor:
        """Return the next read [tokens, width]."""
        read = len(self.sources)
        values = self._values(read)
        weights = self.weighting.weights(read, values)
        self.weights.append(weights)
        mixed = values[0] * weights[0]
        for value, weight in zip(values[1:], weights[1:], strict=True):
            mixed.addcmul_(value, weight)
        return mixed

    def start_backward(self) -> None:
        """Forget what an earlier backward pass has left."""
        self.weighting.start_backward()
        self._gradients.clear()
        self._pool_gradients.clear()

    def read_backward(self, read: int, gradient: Tensor) -> None:
        """Store the gradient of a read for the writes before it."""
        self._gradients[read] = gradient
        values, weights = self._values(read), self.weights[read - 1]
        self.weighting.read_backward(read, [self.weighting.product(gradient, value) for value in values])
        pool = self.plan.pools.get(read)
        if pool is not None:
            self._add_pool_gradient(read, gradient * weights[pool[0]], values[pool[0]])

    def source_gradient(self, source: int) -> Tensor:
        """Return the gradient of a source, gathered over all later reads."""
        value = self.sources[source]
        parts = [
            (self._gradients[read], self.weights[read - 1][position])
            for read, position in self.plan.readers[source]
            if read in self._gradients
        ]
        gradient = parts[0][0] * parts[0][1] if parts else torch.zeros_like(value)
        for of_read, weight in parts[1:]:
            gradient.addcmul_(of_read, weight)
        pooled_from = self.plan.pooled_from[source]
        if pooled_from is not None:
            later_pools = [read for read in self._pool_gradients if read >= pooled_from]
            if later_pools:
                gradient += self._pool_gradients[min(later_pools)]
        through_weights = self.weighting.source_gradient(source, value)
        return gradient if through_weights is None else gradient.add_(through_weights)

    def rows(self) -> list[Tensor]:
        """Return the weights of the reads so far, [tokens or 1, read, width or 1]."""
        matrix = []
        for index, weights in enumerate(self.weights):
            row = weights[0].new_zeros((weights[0].shape[0], index + 1, weights[0].shape[1]))
            for group, weight in zip(self.plan.groups[index], weights, strict=True):
                row[:, group.start : group.stop] = weight.unsqueeze(1)
            matrix.append(row)
        return matrix

    @property
    def written(self) -> int:
        """Sources so far."""
        return len(self.sources)

    def _add_pool_gradient(self, read: int, gradient: Tensor, value: Tensor) -> None:
        """Add the gradient of the pool of this read to that of the later, larger pools."""
        through_weights = self.weighting.pool_gradient(read, value)
        if through_weights is not None:
            gradient = gradient + through_weights
        later = [known for known in self._pool_gradients if known > read]
        self._pool_gradients[read] = gradient + self._pool_gradients[min(later)] if later else gradient

    def _values(self, read: int) -> list[Tensor]:
        """Return the value of each group: a source, or the sum of the pooled ones."""
        return [
            self.sources[group.start] if len(group) == 1 else self._pool(read, group)
            for group in self.plan.groups[read - 1]
        ]

    def _pool(self, read: int, group: range) -> Tensor:
        """Return the sum of the sources of a group; a pool grows from that of the read before."""
        if read not in self.pools:
            before = self.pools.get(read - 1)
            if before is None:
                before, group = self.sources[group.start], group[1:]
            else:
                group = group[-1:]
            self.pools[read] = sum((self.sources[source] for source in group), before)
        return self.pools[read]
