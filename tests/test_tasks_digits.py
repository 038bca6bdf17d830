"""The `digits` task: its split by example, its standardisation, its patches."""

from __future__ import annotations

import itertools

import numpy
import pytest
import torch
from sklearn.datasets import load_digits

from resnas.tasks.digits import Digits
from resnas.tasks.digits_data import split_digits


def test_the_parts_are_disjoint_by_image_and_are_all_images():
    parts = split_digits()
    images = {name: {image.tobytes() for image in part.images} for name, part in parts.items()}
    assert all(not images[a] & images[b] for a, b in itertools.combinations(images, 2))
    everything = {image.astype(numpy.uint8).tobytes() for image in load_digits().data}
    assert set.union(*images.values()) == everything
    assert [len(part.digits) / 1797 for part in parts.values()] == pytest.approx([0.6, 0.2, 0.2], abs=1e-3)


def test_images_keep_their_digit():
    data, target = load_digits(return_X_y=True)
    known = {image.astype(numpy.uint8).tobytes(): digit for image, digit in zip(data, target, strict=True)}
    for part in split_digits().values():
        assert [known[image.tobytes()] for image in part.images] == part.digits.tolist()


def test_the_parts_are_stratified():
    for part in split_digits().values():
        shares = numpy.bincount(part.digits, minlength=10) / len(part.digits)
        assert shares == pytest.approx(numpy.full(10, 0.1), abs=0.006)


def test_training_pixels_alone_are_standardised():
    train_size = len(split_digits()["train"].digits)
    patches, _ = next(Digits().load().train_batches(train_size, 0))  # one epoch
    assert patches.mean().item() == pytest.approx(0, abs=1e-5)
    assert patches.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    held_out = torch.cat([inputs for inputs, _ in Digits().load().batches("test", 64)])
    assert abs(held_out.mean().item()) > 1e-5


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_patches_are_the_squares_of_the_image_row_by_row(patch: int):
    parts = split_digits()
    mean, deviation = parts["train"].images.mean(), parts["train"].images.std()
    patches, _ = Digits(patch=patch).load().batches("validation", 5, 1)[0]
    images = (parts["validation"].images[:5].reshape(5, 8, 8) - mean) / deviation
    per_row = 8 // patch
    for token in range(per_row**2):
        top, left = patch * (token // per_row), patch * (token % per_row)
        square = images[:, top : top + patch, left : left + patch].reshape(5, -1)
        assert patches[:, token].numpy() == pytest.approx(square, abs=1e-5)


def test_every_image_comes_once_per_epoch_in_a_new_order():
    data = Digits(patch=4).load()
    size = len(split_digits()["train"].digits)
    stream = torch.cat([patches for patches, _ in itertools.islice(data.train_batches(100, 3), 22)]).flatten(1)
    first, second = stream[:size], stream[size : 2 * size]
    assert len(first.unique(dim=0)) == size
    assert torch.equal(first.unique(dim=0), second.unique(dim=0))
    assert not torch.equal(first, second)


def test_a_batch_larger_than_an_epoch_is_full():
    patches, digits = next(Digits().load().train_batches(3000, 0))
    assert len(patches) == len(digits) == 3000


def test_accuracy_counts_right_answers():
    data = Digits().load()
    patches, digits = data.batches("validation", 10, 1)[0]
    wrong = (digits + torch.tensor([0] * 7 + [1] * 3)) % 10
    assert data.metrics(torch.eye(10)[wrong], (patches, digits)) == {"accuracy": (7.0, 10.0)}


def test_the_nearest_image_beats_the_most_frequent_digit():
    baselines = Digits().baselines()
    assert baselines["accuracy/most frequent digit"] == pytest.approx(0.1, abs=0.01)
    assert baselines["accuracy/nearest image"] > 0.95


@pytest.mark.parametrize("patch", [3, "2", 8])
def test_only_patches_that_tile_the_image_are_allowed(patch):
    with pytest.raises(ValueError, match="patch"):
        Digits.model_validate({"patch": patch})
