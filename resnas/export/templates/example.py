"""The exported depth mixing in a plain PyTorch Transformer: a language model of the bytes of these files, trained for a
few steps. Needs torch only; run it in this folder with `python example.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from resnas.export.templates.fixed import DepthMixing

HEADS = 4
BYTE_VALUES = 256
CONTEXT = 64
BATCH_SIZE = 8
LEARNING_RATE = 3e-3
EPSILON = 1e-12
"""Of the norms. A mean of many small sources has a small mean square, which the usual epsilon would swallow."""


class Attention(nn.Module):
    """Causal self-attention with its norm before it: what it returns is a source, not yet added to anything."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=EPSILON)
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)

    def forward(self, read: Tensor) -> Tensor:
        """Map [examples, tokens, width] to the same shape."""
        x = self.norm(read)
        hidden = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        output: Tensor = self.attention(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0]
        return output


class MLP(nn.Sequential):
    """Two matrices with GELU between, and their norm before them."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.RMSNorm(width, eps=EPSILON), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )


class Transformer(nn.Module):
    """A decoder whose residual stream is the exported depth mixing."""

    def __init__(self, mixing: DepthMixing, heads: int = HEADS) -> None:
        super().__init__()
        width = mixing.width
        self.mixing = mixing
        self.embedding = nn.Embedding(BYTE_VALUES, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.sublayers = nn.ModuleList(
            sublayer for _ in range(mixing.sublayers // 2) for sublayer in (Attention(width, heads), MLP(width))
        )
        self.norm = nn.RMSNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, BYTE_VALUES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map byte values [examples, tokens] to logits of the next byte [examples, tokens, 256]."""
        sources = [self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]]
        for sublayer in self.sublayers:
            sources.append(sublayer(self.mixing(sources)))
        logits: Tensor = self.head(self.norm(self.mixing(sources)))
        return logits


def train(model: Transformer, steps: int = 40, seed: int = 0) -> list[float]:
    """Train a model and return the loss of each step, in nats per byte."""
    here = Path(__file__).parent
    text = b"".join(path.read_bytes() for path in sorted(here.glob("*.py")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(data) - CONTEXT, (BATCH_SIZE,), generator=generator)
        windows = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
        loss = functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    losses = train(Transformer(DepthMixing()))
    for step in range(0, len(losses), 10):
        print(f"step {step + 1}: {losses[step]:.3f} nats per byte")
    print(f"step {len(losses)}: {losses[-1]:.3f} nats per byte")
