"""The seam: a rule for the depth-mixing matrix, and the stream of one forward pass that reads and writes by it.

    stream = rule.start(embedding)
    for sublayer in sublayers:
        stream.write(sublayer(stream.read()))
    readout = stream.read()

Every stream is made for one forward pass and forgotten after it; a rule holds parameters only. A new topology needs
just `Rule.row`, its plain definition; a faster stream may be returned from `Rule.start` if it equals that definition in
values and gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn


class Stream(ABC):
    """The sources of one forward pass, written one by one and read in mixtures. Shapes: [..., width]."""

    @abstractmethod
    def read(self) -> Tensor:
        """Return the read of the next sublayer (or the readout, after the last write), shape of the embedding."""

    @abstractmethod
    def write(self, source: Tensor) -> None:
        """Add what a sublayer wrote as the next source."""

    @abstractmethod
    def mixing_matrix(self) -> list[Tensor]:
        """Return the weights of the reads so far, detached.

        Entry l - 1 belongs to read l: [tokens or 1, l, width or 1], tokens being all leading dimensions in one.
        """


class Rule(nn.Module, ABC):
    """A rule for the depth-mixing matrix M of a stack of `sublayers` sublayers: read l = sum over i < l of M_(i to l)
    v_i."""

    def __init__(self, sublayers: int, width: int) -> None:
        super().__init__()
        self.sublayers = sublayers
        self.width = width

    @abstractmethod
    def row(self, read: int, sources: Sequence[Tensor]) -> Tensor:
        """Return the weights of read number `read` (1 to S + 1): the definition of the topology.

        Args:
            read: number of the read; it equals the number of sources.
            sources: the sources so far, each [tokens, width].

        Returns:
            Weights [tokens or 1, read, width or 1].
        """

    def start(self, embedding: Tensor) -> Stream:
        """Return the stream of one forward pass whose source 0 is `embedding` [..., width]."""
        return PlainStream(self, embedding)


class PlainStream(Stream):
    """Reads by the definition, with plain autograd: correct for every rule, slow for deep stacks."""

    def __init__(self, rule: Rule, embedding: Tensor) -> None:
        self._rule = rule
        self._shape = embedding.shape
        self._sources = [embedding.flatten(0, -2)]
        self._rows: list[Tensor] = []

    def read(self) -> Tensor:
        """Mix the sources by `Rule.row`."""
        row = self._rule.row(len(self._sources), self._sources)
        self._rows.append(row.detach())
        mixed = sum(row[:, index] * source for index, source in enumerate(self._sources))
        return mixed.reshape(self._shape)  # type: ignore[union-attr]

    def write(self, source: Tensor) -> None:
        """Keep the source."""
        self._sources.append(source.flatten(0, -2).to(self._sources[0].dtype))

    def mixing_matrix(self) -> list[Tensor]:
        """Return the rows that were read."""
        return self._rows
