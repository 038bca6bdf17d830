"""The data of the `digits` task: scikit-learn's images as standardised patches, split by example."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn import functional

from resnas.tasks.digits import SIDE_PIXELS
from resnas.tasks.task import Split

if TYPE_CHECKING:
    from resnas.tasks.task import Batch

SPLIT_SEED = 0
HELD_OUT_SHARE = 0.2
"""Of all images, for validation and again for the test."""


class Part(NamedTuple):
    """Images ([examples, 64], whole numbers 0 to 16) and their digits ([examples])."""

    images: NDArray[numpy.uint8]
    digits: NDArray[numpy.int64]


class DigitsData:
    """Patches, standardised by one mean and one deviation of all training pixels, as corner pixels are constant."""

    def __init__(self, patch: int) -> None:
        parts = split_digits()
        train = parts["train"].images.astype(numpy.float64)
        mean, deviation = train.mean(), train.std()
        self.sha256 = _hash(parts, patch)
        train_count, validation_count, test_count = (len(part.digits) for part in parts.values())
        self.description = (
            f"scikit-learn's handwritten digits: {train_count} images for training, {validation_count} for validation, "
            f"{test_count} for the test, none of them twice"
        )
        self._parts = {
            name: (_patches((part.images - mean) / deviation, patch), torch.from_numpy(part.digits))
            for name, part in parts.items()
        }

    def train_batches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Yield patches (float32 [batch_size, tokens, features]) and digits, shuffled anew in every epoch.

        Every batch is full: one may take the end of an epoch and the beginning of the next.
        """
        generator = torch.Generator().manual_seed(seed)
        patches, digits = self._parts["train"]
        order = torch.empty(0, dtype=torch.int64)
        while True:
            while len(order) < batch_size:
                order = torch.cat([order, torch.randperm(len(digits), generator=generator)])
            chosen, order = order[:batch_size], order[batch_size:]
            yield patches[chosen], digits[chosen]

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> list[Batch]:
        """Return the batches of a held-out part, whose order is random, the first `limit` of them."""
        patches, digits = self._parts[split]
        return list(zip(patches.split(batch_size), digits.split(batch_size), strict=True))[:limit]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return the number of right answers and of images; logits are [examples, 10]."""
        _, digits = batch
        return {"accuracy": (float((logits.argmax(-1) == digits).sum()), float(len(digits)))}


def split_digits() -> dict[str, Part]:
    """Return `train`, `validation` and `test` (60, 20, 20 %), stratified by digit; equal images would be read once."""
    images, digits = load_digits(return_X_y=True)
    images, first = numpy.unique(images.astype(numpy.uint8), axis=0, return_index=True)
    digits = digits[first].astype(numpy.int64)
    held_out = round(HELD_OUT_SHARE * len(digits))
    images, test_images, digits, test_digits = train_test_split(
        images, digits, test_size=held_out, stratify=digits, random_state=SPLIT_SEED
    )
    images, validation_images, digits, validation_digits = train_test_split(
        images, digits, test_size=held_out, stratify=digits, random_state=SPLIT_SEED
    )
    return {
        "train": Part(images, digits),
        "validation": Part(validation_images, validation_digits),
        "test": Part(test_images, test_digits),
    }


@functools.cache
def baselines() -> dict[str, float]:
    """Return the validation accuracy of classifiers that learn little: the most frequent digit, the nearest image."""
    parts = split_digits()
    classifiers = {
        "most frequent digit": DummyClassifier(strategy="most_frequent"),
        "nearest image": KNeighborsClassifier(n_neighbors=1),
    }
    return {
        f"accuracy/{name}": float(classifier.fit(*parts["train"]).score(*parts["validation"]))
        for name, classifier in classifiers.items()
    }


def _patches(images: NDArray[numpy.float64], patch: int) -> Tensor:
    """Cut images ([examples, 64]) into patches, row by row: float32 [examples, tokens, features]."""
    pixels = torch.from_numpy(images.astype(numpy.float32)).reshape(-1, 1, SIDE_PIXELS, SIDE_PIXELS)
    return functional.pixel_unshuffle(pixels, patch).flatten(2).transpose(1, 2).contiguous()


def _hash(parts: dict[str, Part], patch: int) -> str:
    """Hash the images and digits of all parts, their sizes and the patch."""
    digest = hashlib.sha256(f"digits {patch}".encode())
    for name, part in parts.items():
        digest.update(f"\n{name} {len(part.digits)}\n".encode())
        digest.update(part.images.tobytes() + part.digits.astype(numpy.uint8).tobytes())
    return digest.hexdigest()
