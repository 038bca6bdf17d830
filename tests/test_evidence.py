"""Each statistic against its plain definition, and against properties that must hold whatever the numbers."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from resnas.evidence import (
    FEWEST_FOR_INTERVAL,
    best_of_random,
    difference_interval,
    mean_interval,
    rank_correlation,
    share_interval,
)

NUMBERS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 3))


def quantile(values: list[float], share: float) -> float:
    """Return the least value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return next(one for k, one in enumerate(ordered, 1) if k / len(ordered) >= share - 1e-12)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.booleans())
def test_the_best_of_n_is_that_of_all_ways_to_draw_them(values, least):
    for found in best_of_random(values, least=least):
        bests = [(min if least else max)(drawn) for drawn in itertools.combinations(values, found.n)]
        assert found.mean == pytest.approx(statistics.fmean(bests), abs=1e-6)
        sign = 1 if least else -1
        ends = sorted(sign * quantile([sign * one for one in bests], share) for share in (0.05, 0.95))
        assert [found.low, found.high] == ends


@given(st.lists(NUMBERS, min_size=1, max_size=60))
def test_more_draws_are_never_worse_and_all_draws_find_the_best(values):
    found = best_of_random(values)
    assert [one.n for one in found] == list(range(1, len(values) + 1))
    assert found[0].mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found[-1].mean == pytest.approx(min(values))
    assert found[-1].low == found[-1].high == min(values)
    for earlier, later in itertools.pairwise(found):
        assert later.mean <= earlier.mean + 1e-6
        assert later.high <= earlier.high
    mirrored = best_of_random([-one for one in values], least=False)
    assert [-one.mean for one in mirrored] == pytest.approx([one.mean for one in found])


def test_the_best_of_many_draws_is_exact_and_quick():
    found = best_of_random(list(range(1000)))
    assert [one.mean for one in found[:500]] == pytest.approx([1001 / (one.n + 1) - 1 for one in found[:500]])
    assert best_of_random([]) == []


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=30))
def test_without_strata_it_is_the_correlation_of_spearman(pairs):
    first, second = zip(*pairs, strict=True)
    found = rank_correlation(first, second, seed=0)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found[:3] == (None, None, None)
    else:
        assert found.value == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-9)
        assert (found.low is None) == (len(pairs) < FEWEST_FOR_INTERVAL)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=8, max_size=20), st.integers(0, 9))
def test_it_knows_ranks_only_is_symmetric_and_turns_with_the_sign(pairs, seed):
    first, second = (list(side) for side in zip(*pairs, strict=True))
    found = rank_correlation(first, second, seed=seed)
    if found.value is None:
        return
    assert -1 - 1e-9 <= found.low <= found.high <= 1 + 1e-9
    assert rank_correlation([one**3 for one in first], second, seed=seed) == pytest.approx(found)
    assert rank_correlation(second, first, seed=seed) == pytest.approx(found)
    turned = rank_correlation([-one for one in first], second, seed=seed)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))
    assert rank_correlation(first, first, seed=seed).value == pytest.approx(1)


def test_strata_take_away_what_lies_between_them():
    """Across depths both fall, within each depth one rises while the other falls: Simpson's paradox."""
    strata = [depth for depth in (4, 8, 12) for _ in range(5)]
    first = [100.0 * depth + k for depth in (4, 8, 12) for k in range(5)]
    second = [100.0 * depth - k for depth in (4, 8, 12) for k in range(5)]
    assert rank_correlation(first, second, seed=0).value > 0.7
    within = rank_correlation(first, second, strata, seed=0)
    assert within.value == pytest.approx(-1)
    assert within.is_clear
    assert rank_correlation([1, 2, 9], [3, 4, 9], ["a", "a", "b"], seed=0).n == 2


def plain_stratified(first, second, strata):
    sums = np.zeros(3)
    for stratum in set(strata):
        chosen = [k for k, one in enumerate(strata) if one == stratum]
        x, y = ([stats.rankdata([side[k] for k in chosen])[i] for i in range(len(chosen))] for side in (first, second))
        middle = (len(chosen) + 1) / 2
        a = [(one - middle) / (len(chosen) + 1) for one in x]
        b = [(one - middle) / (len(chosen) + 1) for one in y]
        pairs = list(zip(a, b, strict=True))
        sums += [sum(p * q for p, q in pairs), sum(p * p for p, _ in pairs), sum(q * q for _, q in pairs)]
    return sums[0] / math.sqrt(sums[1] * sums[2])


def test_the_interval_is_the_bootstrap_in_a_plain_loop():
    random = np.random.default_rng(3)
    first = random.normal(size=24)
    second = 0.7 * first + random.normal(size=24)
    strata = ["a"] * 10 + ["b"] * 14
    found = rank_correlation(first, second, strata, seed=1)
    assert found.value == pytest.approx(plain_stratified(first, second, strata))
    values = []
    for _ in range(1500):
        drawn = np.concatenate([random.integers(0, 10, 10), random.integers(10, 24, 14)])
        values.append(plain_stratified(first[drawn], second[drawn], [strata[k] for k in drawn]))
    assert [found.low, found.high] == pytest.approx(np.percentile(values, [5, 95]), abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_ninety_percent_intervals_hold_the_truth_about_ninety_percent_of_the_time(n, correlation):
    random, truth = np.random.default_rng(n), 6 / math.pi * math.asin(correlation / 2)
    held = 0
    for seed in range(400):
        first = random.normal(size=n)
        second = correlation * first + math.sqrt(1 - correlation**2) * random.normal(size=n)
        found = rank_correlation(first, second, seed=seed)
        held += found.low <= truth <= found.high
    assert 0.85 <= held / 400 <= 0.98


def test_intervals_are_those_of_the_textbook():
    low, high = mean_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 2.91999 / math.sqrt(3), 2 + 2.91999 / math.sqrt(3)), abs=1e-4)
    assert mean_interval([1.0]) is None
    first, second = [1.0, 1.2, 1.1], [2.0, 2.4]
    low, high = difference_interval(first, second)
    assert (low + high) / 2 == pytest.approx(1.1 - 2.2)
    assert difference_interval(second, first) == pytest.approx((-high, -low))
    assert difference_interval(first, [2.0]) is None
    assert difference_interval([1.0, 1.0], [2.0, 2.0]) is None
    z, n = stats.norm.ppf(0.95), 20
    middle, half = (3 + z**2 / 2) / (n + z**2), z / (n + z**2) * math.sqrt(3 * 17 / n + z**2 / 4)
    assert share_interval(3, n) == pytest.approx((middle - half, middle + half))


@given(st.integers(1, 50).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_of_a_share_holds_the_share_and_stays_between_0_and_1(counted):
    count, total = counted
    low, high = share_interval(count, total)
    assert 0 <= low <= count / total + 1e-12
    assert count / total - 1e-12 <= high <= 1
    assert share_interval(total - count, total) == pytest.approx((1 - high, 1 - low), abs=1e-9)
