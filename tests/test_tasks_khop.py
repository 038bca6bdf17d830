"""The `khop` task against its definition: targets, masks, disjoint parts, and the shortcut that it must beat."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resnas.tasks.khop import KHop
from resnas.tasks.khop_data import draw_letters, hop_targets, shortcut_accuracies
from resnas.tasks.task import IGNORED


def brute_force_hop(letters: list[int], position: int, hops: int) -> int:
    """hop_k(i) as it is defined: find(i) = 1 + the last j < i with X_j = X_i, applied k times; the letter there."""
    for _ in range(hops):
        earlier = [j for j in range(position) if letters[j] == letters[position]]
        if not earlier:
            return IGNORED
        position = 1 + max(earlier)
    return letters[position]


@given(st.data())
def test_targets_equal_the_definition(data: st.DataObject):
    alphabet = data.draw(st.integers(3, 6))
    length = data.draw(st.integers(2, 24))
    examples = data.draw(st.integers(1, 4))
    hops = data.draw(st.lists(st.integers(0, 6), min_size=examples, max_size=examples))
    seed = data.draw(st.integers(0, 2**32))
    letters = draw_letters(examples, alphabet, length, torch.Generator().manual_seed(seed))
    expected = [
        [brute_force_hop(row, position, k) for position in range(length)]
        for row, k in zip(letters.tolist(), hops, strict=True)
    ]
    assert hop_targets(letters, torch.tensor(hops)).tolist() == expected


def test_a_worked_example():
    letters = torch.tensor([[0, 1, 2, 0, 1, 3, 0]]).expand(3, -1)
    assert hop_targets(letters, torch.tensor([0, 1, 2])).tolist() == [
        [0, 1, 2, 0, 1, 3, 0],
        [IGNORED, IGNORED, IGNORED, 1, 2, IGNORED, 1],
        [IGNORED, IGNORED, IGNORED, IGNORED, IGNORED, IGNORED, 2],
    ]


def test_no_letter_follows_itself_and_all_are_equally_frequent():
    letters = draw_letters(4000, 5, 20, torch.Generator().manual_seed(0))
    assert (letters[:, 1:] != letters[:, :-1]).all()
    for position in (0, 1, 19):
        counts = torch.bincount(letters[:, position], minlength=5)
        assert counts.tolist() == pytest.approx([800] * 5, abs=5 * (4000 * 0.2 * 0.8) ** 0.5)
    pairs = Counter(zip(letters[:, 4].tolist(), letters[:, 5].tolist(), strict=True))
    assert sorted(pairs.values()) == pytest.approx([200] * 20, abs=5 * 200**0.5)


def test_examples_follow_the_definition_and_the_first_position_and_undefined_ones_are_masked():
    task = KHop()
    data = task.load()
    for inputs, targets in [next(data.train_batches(32, 4)), *data.batches("validation", 32, 1)]:
        assert (targets[:, 0] == IGNORED).all()
        for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
            k, letters = row[0] - task.alphabet, row[1:]
            assert 0 <= k <= task.max_hops
            assert max(letters) < task.alphabet
            assert answers[1:] == [brute_force_hop(letters, position, k) for position in range(task.length)]


def test_every_k_is_equally_frequent():
    data = KHop().load()
    inputs, _ = next(data.train_batches(4000, 0))
    counts = torch.bincount(inputs[:, 0] - 4, minlength=4).tolist()
    assert counts == pytest.approx([1000] * 4, abs=5 * 750**0.5)
    held_out = torch.cat([inputs for inputs, _ in data.batches("test", 256)])
    assert torch.bincount(held_out[:, 0] - 4).tolist() == [512] * 4


@pytest.mark.parametrize(("task", "least_met"), [(KHop(), 0), (KHop(alphabet=3, length=18, max_hops=1), 2000)])
def test_no_held_out_sequence_is_ever_trained_on(task: KHop, least_met: int):
    """Of few sequences (393,216) training meets many twice, and would meet held-out ones if it could."""
    data = task.load()

    def sequences(batches) -> list[tuple[int, ...]]:
        return [tuple(row[1:]) for inputs, _ in batches for row in inputs.tolist()]

    held_out = {split: set(sequences(data.batches(split, 512))) for split in ("validation", "test")}
    drawn = sequences(itertools.islice(data.train_batches(2048, 7), 20))
    train = set(drawn)
    assert len(drawn) - len(train) >= least_met
    assert not held_out["validation"] & held_out["test"]
    assert not train & (held_out["validation"] | held_out["test"])
    assert min(map(len, held_out.values())) > 1900


def empirical_shortcut(alphabet: int, length: int, k: int) -> float:
    """Fit the best guess for every pair (X_i, X_{i-1}) on the definition, by counting."""
    counts: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for row in draw_letters(1500, alphabet, length, torch.Generator().manual_seed(99)).tolist():
        for position in range(1, length):
            answer = brute_force_hop(row, position, k)
            if answer != IGNORED:
                counts[row[position], row[position - 1]][answer] += 1
    return sum(max(counter.values()) for counter in counts.values()) / sum(map(Counter.total, counts.values()))


@pytest.mark.parametrize(("alphabet", "length"), [(4, 32), (5, 24)])
def test_shortcut_is_the_best_guess_from_the_last_two_letters(alphabet: int, length: int):
    accuracies = shortcut_accuracies(alphabet, length, 3)
    assert accuracies[0] == 1
    for k in (1, 2, 3):
        assert accuracies[k] == pytest.approx(empirical_shortcut(alphabet, length, k), abs=0.015)


@pytest.mark.parametrize("alphabet", [4, 5, 8])
def test_shortcut_of_one_hop_in_a_long_sequence_is_two_over_the_alphabet(alphabet: int):
    """Sum over gaps g of P(gap g) · P(a walk of g - 2 steps on the other letters returns) = 2 / alphabet."""
    assert shortcut_accuracies(alphabet, 1000, 1)[1] == pytest.approx(2 / alphabet, abs=0.012)


def logits_for(answers: torch.Tensor, alphabet: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(answers.clamp(min=0), alphabet).float()


def test_the_shortcut_itself_is_not_above_the_shortcut():
    """Answer as the shortcut does: X_i for k = 0, X_{i-1} for k = 1."""
    data = KHop(alphabet=4, length=100, max_hops=1).load()
    sums = Counter()
    for inputs, targets in data.batches("test", 256):
        previous = inputs.roll(1, 1)
        answers = torch.where(inputs[:, :1] == 4, inputs, previous).clamp(max=3)
        for name, (numerator, denominator) in data.metrics(logits_for(answers, 4), (inputs, targets)).items():
            sums[name, 0] += numerator
            sums[name, 1] += denominator
    assert sums["accuracy_hop_0", 0] == sums["accuracy_hop_0", 1] > 0
    assert sums["above_shortcut", 0] / sums["above_shortcut", 1] == pytest.approx(0, abs=0.01)


def test_metrics_count_defined_positions_only():
    data = KHop().load()
    inputs, targets = data.batches("validation", 64, 1)[0]
    metrics = data.metrics(logits_for(targets, 4), (inputs, targets))
    defined = float((targets != IGNORED).sum())
    assert metrics["accuracy"] == (defined, defined)
    assert sum(metrics[f"accuracy_hop_{k}"][1] for k in range(4)) == defined
    assert metrics["accuracy_hop_0"] == (16 * 32.0, 16 * 32.0)
    wrong = data.metrics(logits_for((targets + 1) % 4, 4), (inputs, targets))
    assert wrong["accuracy"] == (0.0, defined)
    assert wrong["above_shortcut"][0] < 0


def test_above_shortcut_is_accuracy_minus_the_shortcut_baseline():
    task = KHop(alphabet=5, length=40, max_hops=4)
    data = task.load()
    batch = data.batches("validation", 4096)[0]
    metrics = data.metrics(torch.randn(2048, 41, 5, generator=torch.Generator().manual_seed(0)), batch)
    accuracy, above = (metrics[name][0] / metrics[name][1] for name in ("accuracy", "above_shortcut"))
    baselines = task.baselines()
    assert accuracy == pytest.approx(baselines["accuracy/constant guess"], abs=0.01)
    assert above == pytest.approx(accuracy - baselines["accuracy/shortcut"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alphabet": 3, "length": 10}, "only 1536 sequences; at least 65536 are needed"),
        ({"alphabet": 8, "max_hops": 5}, "max_hops 5 is too large.*at most 4"),
        ({"alphabet": 2}, "alphabet"),
        ({"max_hops": -1}, "max_hops"),
        ({"hops": 3}, "hops"),
    ],
)
def test_options_that_leave_no_task_are_refused(options, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        KHop.model_validate(options)


def test_the_published_setting_is_allowed():
    assert KHop(length=100, max_hops=16).shape().input_size == 21
