"""The residual families that resnas knows by name, as YAML options (no torch here)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from resnas.record import Count
from resnas.residual.topology import Scalar, Topology

if TYPE_CHECKING:
    from resnas.residual.rule import Rule


class Fixed(Topology):
    """The PreNorm residual stream: every source has weight 1 in every later read."""

    def build(self, sublayers: int, width: int) -> Rule:
        """Return the rule whose matrix is all ones."""
        from resnas.residual.static import FixedRule

        return FixedRule(sublayers, width)

    def mixing_flops(self, sublayers: int, width: int) -> int:
        """Return zero: a running sum needs no multiplication."""
        return 0


class ScalarLearned(Topology):
    """One learned number per read and source, the same for every token; all start at 1, which is `fixed`."""

    weights_learned: ClassVar[bool] = True

    per_channel: bool = False
    """One number per feature as well."""

    def build(self, sublayers: int, width: int) -> Rule:
        """Return the rule with its table of ones."""
        from resnas.residual.static import ScalarRule

        return ScalarRule(sublayers, width, per_channel=self.per_channel)

    def mixing_parameters(self, sublayers: int, width: int) -> int:
        """Return the size of the lower triangle (times the width where it is per channel)."""
        return (sublayers + 1) * (sublayers + 2) // 2 * (width if self.per_channel else 1)

    def properties(self, sublayers: int) -> dict[str, Scalar]:
        """Add `per_channel`."""
        return super().properties(sublayers) | {"per_channel": self.per_channel}


class DepthAttention(Topology):
    """Softmax over sources with a learned query per read: logit = w_l · norm(v_i) (arXiv 2603.15031, Full AttnRes).

    Queries start at zero, so that every visible source starts with the same weight. A read that sees one source has no
    query: its weight is 1 whatever the query says.
    """

    weights_learned: ClassVar[bool] = True
    token_dependent: ClassVar[bool] = True
    normalised: ClassVar[bool] = True

    key_norm: Literal["rms", "none"] = "rms"
    """Normalise a source (root mean square, no gain) before its product with the query."""

    def build(self, sublayers: int, width: int) -> Rule:
        """Return the softmax rule over `groups`."""
        from resnas.residual.attention import DepthAttentionRule

        return DepthAttentionRule(sublayers, width, groups=self.groups, key_norm=self.key_norm)

    def queried_reads(self, sublayers: int) -> list[int]:
        """Return the reads that choose between at least two sources."""
        return [read for read in range(1, sublayers + 2) if len(self.groups(read)) > 1]

    def mixing_parameters(self, sublayers: int, width: int) -> int:
        """Return `width` for each read that has a query."""
        return len(self.queried_reads(sublayers)) * width

    def mixing_flops(self, sublayers: int, width: int) -> int:
        """Return the FLOPs of the logits and of the weighted sums, per token."""
        logits = 2 * width * sum(len(self.groups(read)) for read in self.queried_reads(sublayers))
        return logits + super().mixing_flops(sublayers, width)

    def properties(self, sublayers: int) -> dict[str, Scalar]:
        """Add `key_norm`; a topology whose reads all have one source has nothing to learn or to choose."""
        found = super().properties(sublayers) | {"key_norm": self.key_norm}
        if not self.queried_reads(sublayers):
            found |= {"weights_learned": False, "token_dependent": False, "key_norm": None}
        return found


class FullDepthAttention(DepthAttention):
    """Softmax over all sources."""


class WindowedDepthAttention(DepthAttention):
    """Softmax over the last `window` sources, the embedding if kept, and perhaps one source that pools the older
    ones."""

    window: Count
    """How many of the newest sources a read sees, each on its own."""
    keep_embedding: bool = True
    """See the embedding (source 0) on its own, however old it is."""
    old_sources: Literal["drop", "remainder"] = "drop"
    """Forget sources older than the window, or see their sum as one source, the remainder."""

    def groups(self, read: int) -> Sequence[range]:
        """Return embedding (if kept), remainder (if any), then the newest `window` sources one by one."""
        first_new = max(0, read - self.window)
        first_old = 1 if self.keep_embedding else 0
        groups = [range(0, 1)] if self.keep_embedding and first_new > 0 else []
        if self.old_sources == "remainder" and first_new > first_old:
            groups.append(range(first_old, first_new))
        return groups + [range(source, source + 1) for source in range(first_new, read)]

    def canonical(self, sublayers: int) -> Topology:
        """A window that every read fits into is full depth attention."""
        full = FullDepthAttention(key_norm=self.key_norm)
        last_read = sublayers + 1
        if self.groups(last_read) == full.groups(last_read):
            return full
        return self

    def properties(self, sublayers: int) -> dict[str, Scalar]:
        """Add `window_sources`."""
        return super().properties(sublayers) | {"window_sources": self.window}


TOPOLOGIES: dict[str, type[Topology]] = {
    "fixed": Fixed,
    "scalar_learned": ScalarLearned,
    "windowed_depth_attention": WindowedDepthAttention,
    "full_depth_attention": FullDepthAttention,
}
