"""The data of the `khop` task: sequences, their k-hop targets, and what a shortcut reaches without any hop."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from resnas.tasks.task import IGNORED, Split

if TYPE_CHECKING:
    from resnas.tasks.task import Batch

HELD_OUT_EXAMPLES = 2048
HELD_OUT_SEEDS: dict[Split, int] = {"validation": 1, "test": 2}
SHORTCUT_POSITIONS = 2**18
FINGERPRINT_MODULUS = 2**31 - 1
FINGERPRINT_BASE = 48271
BUCKETS = 16
"""One bucket of fingerprints is kept for validation and one for the test; training never sees them."""

PartName = Literal["train", "validation", "test"]


class KHopData:
    """Endless training examples and fixed held-out ones. A sequence belongs to one part only, by its fingerprint."""

    def __init__(self, alphabet: int, length: int, max_hops: int) -> None:
        self.alphabet, self.length, self.max_hops = alphabet, length, max_hops
        self.description = (
            f"k-hop induction: {length} of {alphabet} letters, k from 0 to {max_hops}, fresh training examples, "
            f"{HELD_OUT_EXAMPLES} each for validation and the test"
        )
        self._held_out = {split: self._held_out_examples(split) for split in HELD_OUT_SEEDS}
        self.sha256 = self._hash()

    def train_batches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield fresh examples: tokens and targets, both int64 [batch_size, 1 + length]."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            letters = self._draw("train", batch_size, generator)
            hops = torch.randint(self.max_hops + 1, (batch_size,), generator=generator)
            yield self._examples(letters, hops)

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> list[Batch]:
        """Return the batches of a held-out part, the first `limit` of them."""
        inputs, targets = self._held_out[split]
        return list(zip(inputs.split(batch_size), targets.split(batch_size), strict=True))[:limit]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return right answers and defined positions, in all and per k, and right answers above the shortcut.

        Logits are [examples, 1 + length, alphabet]. The shortcut is the best guess from the last two letters for that
        k, so a model that knows no more has `above_shortcut` 0.
        """
        inputs, targets = batch
        hops = inputs[:, 0].cpu() - self.alphabet

        def per_hop(positions: Tensor) -> list[float]:
            return torch.bincount(hops, positions.sum(1).cpu().double(), minlength=self.max_hops + 1).tolist()

        count = per_hop(targets != IGNORED)
        right = per_hop(logits.argmax(-1) == targets)  # no letter equals IGNORED
        expected = sum(n * accuracy for n, accuracy in zip(count, self._shortcuts(), strict=True))
        return {
            "accuracy": (sum(right), sum(count)),
            "above_shortcut": (sum(right) - expected, sum(count)),
            **{f"accuracy_hop_{k}": (right[k], count[k]) for k in range(self.max_hops + 1)},
        }

    def shortcut_baselines(self, split: Split) -> dict[str, float]:
        """Return the accuracy of the best guess from the last two letters, over all of a part and for each k."""
        inputs, targets = self._held_out[split]
        defined = (targets != IGNORED).sum(1)
        expected = torch.tensor(self._shortcuts(), dtype=torch.float64)[inputs[:, 0] - self.alphabet]
        return {
            "accuracy/shortcut": float((expected * defined).sum() / defined.sum()),
            **{f"accuracy_hop_{k}/shortcut": accuracy for k, accuracy in enumerate(self._shortcuts())},
        }

    def _shortcuts(self) -> tuple[float, ...]:
        return shortcut_accuracies(self.alphabet, self.length, self.max_hops)

    def _draw(self, part: PartName, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count` sequences of one part, by throwing away those of the others."""
        share = {"train": 1 - 2 / BUCKETS, "validation": 1 / BUCKETS, "test": 1 / BUCKETS}[part]
        kept = torch.empty(0, self.length, dtype=torch.int64)
        while len(kept) < count:
            letters = draw_letters(round((count - len(kept)) / share) + BUCKETS, self.alphabet, self.length, generator)
            kept = torch.cat([kept, letters[_in_part(letters, part)]])
        return kept[:count]

    def _held_out_examples(self, split: Split) -> Batch:
        letters = self._draw(split, HELD_OUT_EXAMPLES, torch.Generator().manual_seed(HELD_OUT_SEEDS[split]))
        hops = torch.arange(HELD_OUT_EXAMPLES) % (self.max_hops + 1)  # every k equally often, in any first part
        return self._examples(letters, hops)

    def _examples(self, letters: Tensor, hops: Tensor) -> Batch:
        inputs = torch.cat([self.alphabet + hops[:, None], letters], 1)
        ignored = torch.full((len(letters), 1), IGNORED)
        return inputs, torch.cat([ignored, hop_targets(letters, hops)], 1)

    def _hash(self) -> str:
        """Hash the options, the held-out examples and a first batch of training, which tells the generator apart."""
        digest = hashlib.sha256(f"khop {self.alphabet} {self.length} {self.max_hops}\n".encode())
        for inputs, targets in (*self._held_out.values(), next(self.train_batches(64, seed=0))):
            digest.update(inputs.numpy().tobytes() + targets.numpy().tobytes())
        return digest.hexdigest()


def draw_letters(count: int, alphabet: int, length: int, generator: torch.Generator) -> Tensor:
    """Draw sequences (int64 [count, length]), uniform among those in which no letter follows itself."""
    first = torch.randint(alphabet, (count, 1), generator=generator)
    steps = torch.randint(1, alphabet, (count, length - 1), generator=generator)
    return torch.cat([first, steps], 1).cumsum(1) % alphabet


def hop_targets(letters: Tensor, hops: Tensor) -> Tensor:
    """Return hop_k at every position: int64 [examples, length], `IGNORED` where it does not exist.

    find(i) = 1 + the last j < i with X_j = X_i; hop_k(i) = X at find applied k times to i (arXiv 2402.09268, k-hop
    induction head task). Counted from 0, position 0 can never be a find, so 0 also stands for "does not exist".

    Args:
        letters: int64 [examples, length].
        hops: k of each example, int64 [examples].
    """
    finds = _finds(letters)
    positions = torch.arange(letters.shape[1]).expand_as(letters)
    for k in range(1, int(hops.max()) + 1):
        positions = torch.where((hops >= k)[:, None], finds.gather(1, positions), positions)
    exists = (positions > 0) | (hops == 0)[:, None]
    return letters.gather(1, positions).where(exists, IGNORED)


@functools.cache
def shortcut_accuracies(alphabet: int, length: int, max_hops: int) -> tuple[float, ...]:
    """Return for each k the accuracy of the best guess from (X_i, X_{i-1}) alone, estimated from random sequences.

    All letters are alike, so the best guess is X_i, X_{i-1}, or any one of the others: their count over their number.
    """
    generator = torch.Generator().manual_seed(0)
    letters = draw_letters(SHORTCUT_POSITIONS // length, alphabet, length, generator)
    before = letters.roll(1, 1)
    before[:, 0] = IGNORED - 1  # the first letter has none before it
    accuracies = []
    for k in range(max_hops + 1):
        targets = hop_targets(letters, torch.full((len(letters),), k))
        defined = (targets != IGNORED).sum()
        same = (targets == letters).sum() / defined
        previous = (targets == before).sum() / defined
        accuracies.append(max(same.item(), previous.item(), (1 - same - previous).item() / (alphabet - 2)))
    return tuple(accuracies)


def _finds(letters: Tensor) -> Tensor:
    """Return find(i) for all positions, [examples, length]; 0 where the letter did not occur before."""
    length = letters.shape[1]
    occurs = torch.nn.functional.one_hot(letters)  # [examples, length, alphabet]
    after_last = (occurs * torch.arange(1, length + 1)[:, None]).cummax(1).values
    earlier = torch.cat([torch.zeros_like(after_last[:, :1]), after_last[:, :-1]], 1)
    return earlier.gather(2, letters[:, :, None]).squeeze(2)


def _in_part(letters: Tensor, part: PartName) -> Tensor:
    """Tell by the Rabin fingerprint of each sequence whether it belongs to a part: bool [examples]."""
    weights = [pow(FINGERPRINT_BASE, power, FINGERPRINT_MODULUS) for power in range(1, letters.shape[1] + 1)]
    bucket = (letters @ torch.tensor(weights)) % FINGERPRINT_MODULUS % BUCKETS
    return bucket > 1 if part == "train" else bucket == {"validation": 0, "test": 1}[part]
