"""The data of the `text` task: windows of a corpus as tensors, and bits per byte."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from resnas.tasks.corpus import Corpus
from resnas.tasks.task import Split

if TYPE_CHECKING:
    from resnas.tasks.task import Batch

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class TextData:
    """Windows of `context` bytes, each with the same bytes shifted by one as targets."""

    def __init__(self, corpus: Corpus, context: int) -> None:
        self.description = corpus.description
        self.context = context
        self.sha256 = _hash(corpus, context)
        self._train = _as_tensor(corpus.train)
        self._held_out: dict[Split, Tensor] = {
            "validation": _as_tensor(corpus.validation),
            "test": _as_tensor(corpus.test),
        }

    def train_batches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield windows (int64 [batch_size, context]) at random places of the training text, and their targets."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            starts = torch.randint(len(self._train) - self.context, (batch_size,), generator=generator)
            yield self._windows(self._train, starts)

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> list[Batch]:
        """Return the windows that tile a held-out text without overlap; the first of them already spread over it."""
        text = self._held_out[split]
        starts = spread_evenly((len(text) - 1) // self.context) * self.context
        if limit is not None:
            starts = starts[: limit * batch_size]
        return [self._windows(text, chunk) for chunk in starts.split(batch_size)]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return the summed bits (loss / ln 2) and the bytes; logits are [examples, context, 256]."""
        _, targets = batch
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        return {"bits_per_byte": (loss.item() / math.log(2), float(targets.numel()))}

    def _windows(self, text: Tensor, starts: Tensor) -> Batch:
        windows = text[starts[:, None] + torch.arange(self.context + 1)].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def spread_evenly(count: int) -> Tensor:
    """Return the numbers below `count` in the order of a golden-ratio walk, whose first steps already spread."""
    step = max(1, round(count * GOLDEN_RATIO))
    while math.gcd(step, count) > 1:
        step += 1
    return torch.arange(count) * step % count


def _as_tensor(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def _hash(corpus: Corpus, context: int) -> str:
    """Hash all bytes in order, where the parts end, and the length of the windows."""
    digest = hashlib.sha256(
        f"text {context} {len(corpus.train)} {len(corpus.validation)} {len(corpus.test)}\n".encode()
    )
    for part in (corpus.train, corpus.validation, corpus.test):
        digest.update(part)
    return digest.hexdigest()
