"""What a residual topology *is*, without torch: its YAML options, its groups of sources, its properties.

The rule that turns these options into a depth-mixing matrix is built by `build` and lives in the modules beside this
one. Sources are numbered 0 (the embedding) to S (the output of the last sublayer); reads 1 to S + 1, the last being the
readout; read l may use sources 0 to l - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from resnas.record import Record

if TYPE_CHECKING:
    from resnas.residual.rule import Rule

Scalar = bool | int | float | str | None


class Topology(Record):
    """YAML options of a residual topology: subclass, declare the options as fields, and return a rule from `build`."""

    weights_learned: ClassVar[bool] = False
    """Are there trained parameters in the depth-mixing matrix?"""
    token_dependent: ClassVar[bool] = False
    """Do the weights differ from token to token?"""
    normalised: ClassVar[bool] = False
    """Do the weights of a read sum to one?"""

    def build(self, sublayers: int, width: int) -> Rule:
        """Return the rule of this topology for a stack of `sublayers`, each source being `width` features wide."""
        raise NotImplementedError(f"{type(self).__name__} must implement build(sublayers, width)")

    def groups(self, read: int) -> Sequence[range]:
        """Return the sources that read number `read` uses, in order; those of one group share one weight.

        The default is every source on its own.
        """
        return [range(source, source + 1) for source in range(read)]

    def mixing_parameters(self, sublayers: int, width: int) -> int:
        """Return the number of trained parameters of the rule."""
        return 0

    def mixing_flops(self, sublayers: int, width: int) -> int:
        """Return the multiply-add FLOPs (two each) that mixing costs per token and forward pass."""
        return 2 * width * sum(len(self.groups(read)) for read in range(1, sublayers + 2))

    def canonical(self, sublayers: int) -> Topology:
        """Return the simplest topology that is the same function in a stack of `sublayers`."""
        return self

    def properties(self, sublayers: int) -> dict[str, Scalar]:
        """Return what describes this topology across families: see `resnas.architecture.PROPERTIES`."""
        reads = range(2, sublayers + 2)  # read 1 has one source in every topology
        groups = {read: self.groups(read) for read in reads}
        seen = {read: {source for group in groups[read] for source in group} for read in reads}
        pooled = any(len(group) > 1 for read in reads for group in groups[read])
        complete = all(len(seen[read]) == read for read in reads)
        return {
            "weights_learned": self.weights_learned,
            "token_dependent": self.token_dependent,
            "normalised": self.normalised,
            "sources_per_read": sum(len(groups[read]) for read in reads) / len(reads),
            "reach": sum(len(seen[read]) / read for read in reads) / len(reads),
            "embedding_kept": all(any(list(group) == [0] for group in groups[read]) for read in reads),
            "old_sources": "pooled" if pooled else "kept" if complete else "dropped",
        }
