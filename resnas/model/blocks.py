"""The blocks of the stack: norms, attention with rotary positions, MLP, and the sublayer around a branch.

Shapes: B examples, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from resnas.architecture import Architecture
from resnas.model.cache import KeyValueCache
from resnas.residual.attention import EPSILON
from resnas.tasks.task import TaskShape


class RMSNorm(nn.RMSNorm):
    """RMSNorm whose epsilon is far below any mean square that it meets.

    A read that is a mean of l sources of size 0.02 has a mean square of 4e-4 / l²; with the usual 1e-6 the network
    would no longer be invariant to the scale of its reads, and zero-query depth attention would differ from PreNorm.
    """

    def __init__(self, width: int, *, gain: bool = True) -> None:
        super().__init__(width, eps=EPSILON, elementwise_affine=gain)


class Attention(nn.Module):
    """Multi-head self-attention, causal or not, with rotary positions or none."""

    def __init__(self, architecture: Architecture, shape: TaskShape, layer: int) -> None:
        super().__init__()
        self.layer = layer
        width = architecture.width
        self.heads = architecture.heads
        self.causal = shape.causal
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.rotary = RotaryPositions(shape.context, width // self.heads) if architecture.positions == "rope" else None

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Map [B, T, D] to [B, T, D]; with a cache, these T tokens follow those that it holds, and are added to it."""
        batch, tokens, width = x.shape
        heads = self.query_key_value(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)  # each [B, heads, T, D / heads]
        if self.rotary is not None:
            first = 0 if cache is None else cache.length
            query, key = self.rotary(query, first), self.rotary(key, first)
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        mixed = self._mix(query, key, value)
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return output

    def _mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Let the newest tokens look at all of them; one token alone may see everything, so it needs no mask."""
        new, known = query.shape[2], key.shape[2]
        if new == known:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        # `is_causal` would take the first query for the oldest token, not for the first new one
        visible = None if new == 1 else query.new_ones((new, known), dtype=torch.bool).tril(known - new)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)


class RotaryPositions(nn.Module):
    """Rotate pairs of features by an angle that grows with the position (RoPE, arXiv 2104.09864)."""

    def __init__(self, context: int, features: int, base: float = 10_000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
        angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
        self.register_buffer("cosine", angles.cos().repeat(1, 2).float(), persistent=False)
        self.register_buffer("sine", torch.cat((-angles.sin(), angles.sin()), dim=1).float(), persistent=False)
        self.cosine: Tensor
        self.sine: Tensor

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate [B, heads, T, features], whose first token has the position `first`."""
        half, places = x.shape[-1] // 2, slice(first, first + x.shape[-2])
        return x * self.cosine[places].to(x.dtype) + x.roll(half, dims=-1) * self.sine[places].to(x.dtype)


class MLP(nn.Module):
    """Two matrices with GELU between, or three with a SiLU gate (SwiGLU)."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        width, hidden = architecture.width, architecture.mlp_width
        self.gate = nn.Linear(width, hidden, bias=False) if architecture.mlp == "swiglu" else None
        self.input = nn.Linear(width, hidden, bias=False)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, D] to [B, T, D]."""
        hidden = self.input(x)
        hidden = functional.gelu(hidden) if self.gate is None else functional.silu(self.gate(x)) * hidden
        output: Tensor = self.output(hidden)
        return output


class Sublayer(nn.Module):
    """A branch (attention or MLP) with its norms and scale: what it writes for a read r.

    pre: f(N r). sandwich: N f(N r). post: N(r + f(r)) - r, so that in the fixed stream the next read is N(r + f(r)),
        the original
    Transformer; that norm has no gain, which keeps the stream a weighted sum of branch outputs, token by token.
    """

    def __init__(self, branch: Attention | MLP, architecture: Architecture, layer: int) -> None:
        super().__init__()
        norm, width = architecture.norm, architecture.width
        self.branch = branch
        self.norm_before = RMSNorm(width) if norm != "post" else None
        self.norm_after = RMSNorm(width) if norm == "sandwich" else None
        self.scale = 1 / math.sqrt(layer) if architecture.branch_scale == "1/sqrt(layer)" else None

    def forward(
        self,
        read: Tensor,
        probe: Callable[[Tensor], Tensor] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return the source that this sublayer writes [B, T, D]."""
        consumed = read if self.norm_before is None else self.norm_before(read)
        if self.scale is not None:
            consumed = consumed * self.scale
        output = self.branch(consumed, cache) if isinstance(self.branch, Attention) else self.branch(consumed)
        if self.norm_after is not None:
            output = self.norm_after(output)
        if probe is not None:
            output = probe(output)
        if self.norm_before is None:
            return root_mean_square_normalised(read + output) - read
        return output  # type: ignore[no-any-return]


def root_mean_square_normalised(x: Tensor) -> Tensor:
    """Return x / rms(x) over the last dimension."""
    return functional.rms_norm(x, (x.shape[-1],), eps=EPSILON)
