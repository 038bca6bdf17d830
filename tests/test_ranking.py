"""Noise must be refused, planted effects must come back with their direction, and every part has a closed form."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from resnas.errors import InputError
from resnas.ranking import CONSTANT, NOT_SEPARABLE, SUPPORTED, Ranking, rank
from resnas.ranking.columns import association, encode_property
from resnas.ranking.inference import (
    bootstrap_rows,
    holm,
    noise_ceiling,
    p_value_above,
    p_values_above,
    trials_for_r2,
)
from resnas.ranking.ridge import make_splits

QUICK = {"folds": 4, "repeats": 1, "bootstraps": 10, "shuffles": 20}


def planted(seed: int, trials: int = 60, signal: float = 1.0) -> pandas.DataFrame:
    """`window` raises the loss by 2·signal per unit, `gated` lowers it by 3·signal, the rest does nothing; noise 1."""
    random = np.random.default_rng(seed)
    table = pandas.DataFrame(
        {
            "key": [f"architecture-{number}" for number in range(trials)],
            "window": random.uniform(0, 2, trials),
            "gated": random.random(trials) < 0.5,
            "norm": random.choice(["pre", "post", "sandwich"], trials),
            "heads": random.choice([2, 4, 8], trials),
            "rate": 10 ** random.uniform(-4, -2, trials),
            "swish": random.random(trials) < 0.5,
        }
    )
    truth = 2 * table["window"] - 3 * table["gated"]
    table["loss"] = 5 + signal * truth + random.normal(size=trials)
    return table


PROPERTIES = ["window", "gated", "norm", "heads", "rate", "swish"]


def by_name(ranking: Ranking) -> dict:
    return {effect.name: effect for effect in ranking.effects}


@pytest.fixture(scope="module")
def found() -> Ranking:
    return rank(planted(3), PROPERTIES, "loss", seed=0, **QUICK)


# The whole: noise, planted effects, refusals


def test_pure_noise_is_refused() -> None:
    least = {"folds": 3, "repeats": 1, "bootstraps": 1, "shuffles": 20}
    rankings = [rank(planted(seed, 40, signal=0), PROPERTIES, "loss", seed=seed, **least) for seed in range(15)]
    assert sum(ranking.reliable for ranking in rankings) <= 1
    for ranking in rankings:
        if not ranking.reliable:
            assert ranking.refusal is not None
            assert ranking.refusal.startswith("no reliable ranking: held-out R² = ")
            assert "more trials" in ranking.refusal
            assert all(effect.verdict == NOT_SEPARABLE for effect in ranking.effects)
            assert all(effect.direction == "no clear direction" for effect in ranking.effects)


def test_p_values_hold_their_error_rate_without_the_gate() -> None:
    """The gate alone stops noise; so the p-values are tested where the gate cannot help: 400 ungated noise studies."""
    random = np.random.default_rng(1)
    false_findings = 0
    for _ in range(400):
        common = random.normal(size=(101, 1))
        statistics = (random.normal(size=(101, 8)) + common) ** 2 * np.arange(1, 9)  # dependent, skew, of unlike spread
        false_findings += holm(p_values_above(statistics[0], statistics[1:])).min() < 0.05
    assert 0 < false_findings / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_planted_effects_are_found_with_direction_and_size(found: Ranking) -> None:
    assert found.reliable
    assert found.refusal is None
    effects = by_name(found)
    assert {name for name, effect in effects.items() if effect.verdict == SUPPORTED} == {"window", "gated"}
    assert effects["window"].direction == "higher raises loss"
    assert effects["gated"].direction == "true lowers loss"
    assert effects["gated"].effect_low <= -3 <= effects["gated"].effect_high
    window = planted(3)["window"]
    low, high = window.quantile([0.1, 0.9])
    true_effect = 2 * (window[window >= high].mean() - window[window <= low].mean())
    standard_error = math.sqrt(2 / 6)  # two tails of six trials, noise 1
    assert effects["window"].effect == pytest.approx(true_effect, abs=2.5 * standard_error)
    assert [effect.name for effect in found.effects[:2]] == ["gated", "window"]
    assert "Supported: gated: true lowers loss" in found.sentence()


def test_a_categorical_effect_names_its_levels() -> None:
    table = planted(5, signal=0)
    table["loss"] += table["norm"].map({"pre": 0.0, "post": 4.0, "sandwich": 2.0})
    norm = by_name(rank(table, PROPERTIES, "loss", seed=0, **QUICK))["norm"]
    assert norm.verdict == SUPPORTED
    assert norm.direction == "lowest with pre, highest with post"
    assert norm.effect_low <= 4 <= norm.effect_high


def test_intervals_hold_their_estimates(found: Ranking) -> None:
    assert found.r2_low < found.r2 < found.r2_high
    for effect in found.effects:
        assert effect.importance_low <= effect.importance <= effect.importance_high
        assert effect.effect_low <= effect.effect <= effect.effect_high


def test_the_same_seed_gives_the_same_ranking_and_another_does_not(found: Ranking) -> None:
    assert rank(planted(3), PROPERTIES, "loss", seed=0, **QUICK) == found
    assert rank(planted(3), PROPERTIES, "loss", seed=1, **QUICK).r2 != found.r2


def test_the_unit_of_the_target_only_scales_the_sizes(found: Ranking) -> None:
    table = planted(3)
    table["loss"] = 1024 * table["loss"]  # a power of two, so that no split changes by rounding
    scaled = rank(table, PROPERTIES, "loss", seed=0, **QUICK)
    assert scaled.r2 == pytest.approx(found.r2)
    for effect, of in zip(scaled.effects, found.effects, strict=True):
        assert (effect.name, effect.verdict, effect.p_value) == (of.name, of.verdict, of.p_value)
        assert effect.importance == pytest.approx(1024 * of.importance)
        assert effect.effect_low == pytest.approx(1024 * of.effect_low)


def test_a_monotone_transform_of_a_property_changes_nothing(found: Ranking) -> None:
    table = planted(3)
    table["rate"] = np.log(table["rate"])
    table["heads"] = table["heads"] ** 3
    assert without_level_names(rank(table, PROPERTIES, "loss", seed=0, **QUICK)) == without_level_names(found)


def without_level_names(ranking: Ranking) -> Ranking:
    effects = [
        replace(effect, levels=tuple(replace(level, name="") for level in effect.levels)) for effect in ranking.effects
    ]
    return replace(ranking, effects=tuple(effects))


def test_too_few_trials_are_refused_and_how_many_more_is_said() -> None:
    ranking = rank(planted(0, trials=30), PROPERTIES, "loss", seed=0, minimum_trials=40, **QUICK)
    assert not ranking.reliable
    assert "10 more trials" in str(ranking.refusal)
    assert all(effect.verdict == NOT_SEPARABLE for effect in ranking.effects)


def test_many_replicates_of_few_architectures_are_refused() -> None:
    table = pandas.concat([planted(0, trials=6)] * 10)
    ranking = rank(table, PROPERTIES, "loss", seed=0, **QUICK)
    assert (ranking.n_trials, ranking.n_architectures, ranking.r2) == (60, 6, None)
    assert "24 more trials of new architectures" in str(ranking.refusal)
    assert all(effect.importance is None and effect.verdict == NOT_SEPARABLE for effect in ranking.effects)
    assert ranking.sentence().startswith("loss: no reliable ranking")


def test_an_empty_table_and_a_constant_target_are_refused() -> None:
    empty = rank(planted(0).iloc[:0], PROPERTIES, "loss", seed=0, **QUICK)
    assert (empty.n_trials, empty.reliable) == (0, False)
    constant = rank(planted(0).assign(loss=1.5), PROPERTIES, "loss", seed=0, **QUICK)
    assert "is the same in all 60 trials" in str(constant.refusal)


def test_rows_without_a_finite_target_are_counted_and_change_nothing(found: Ranking) -> None:
    broken = planted(9, trials=3).assign(loss=[math.nan, math.inf, -math.inf])
    with_broken = rank(pandas.concat([broken, planted(3)]), PROPERTIES, "loss", seed=0, **QUICK)
    assert with_broken.n_excluded == 3
    assert with_broken.n_trials == 60
    assert with_broken.effects == found.effects


def test_a_constant_property_is_reported_and_changes_nothing(found: Ranking) -> None:
    ranking = rank(planted(3).assign(depth=8), ["depth", *PROPERTIES], "loss", seed=0, **QUICK)
    last = ranking.effects[-1]
    assert (last.name, last.verdict, last.importance, last.effect) == ("depth", CONSTANT, 0.0, 0.0)
    assert ranking.effects[:-1] == found.effects


def test_twins_are_one_group_with_one_verdict() -> None:
    table = planted(3)
    table["reach"] = table["window"] ** 2 + 1
    ranking = rank(table, ["reach", *PROPERTIES], "loss", seed=0, **QUICK)
    assert "reach (not told apart from window): higher raises loss" in ranking.sentence()
    assert "window (not told" not in ranking.sentence()
    effects = by_name(ranking)
    window, reach = effects["window"], effects["reach"]
    assert (window.correlated_with, reach.correlated_with) == (("reach",), ("window",))
    assert (window.importance, window.p_value, window.verdict) == (reach.importance, reach.p_value, SUPPORTED)
    assert effects["gated"].correlated_with == ()


def test_the_twin_that_applies_to_most_trials_names_the_group() -> None:
    table = planted(3)
    table["sources"] = table["window"].where(table["gated"])  # known in half of the trials, and there the same
    ranking = rank(table, ["sources", *PROPERTIES], "loss", seed=0, **QUICK)
    leaders = [effect.name for effect in ranking.moved_together()]
    assert "window" in leaders
    assert "sources" not in leaders
    assert "window (not told apart from sources" in ranking.sentence()


def conditional(seed: int, trials: int = 80) -> pandas.DataFrame:
    """`window` applies to the family `windowed` only, and is all that matters, there."""
    random = np.random.default_rng(seed)
    family = random.choice(["fixed", "windowed", "full"], trials, p=[0.2, 0.6, 0.2])
    window = np.where(family == "windowed", random.choice([1.0, 2.0, 3.0, 4.0], trials), np.nan)
    table = pandas.DataFrame({"key": np.arange(trials).astype(str), "family": family, "window": window})
    table["embedding"] = [bool(random.random() < 0.5) if one == "windowed" else None for one in family]
    table["noise"] = random.random(trials)
    table["loss"] = 2 * np.nan_to_num(window - 2.5) + 0.5 * random.normal(size=trials)
    return table


def test_an_option_is_judged_where_it_applies() -> None:
    table = conditional(1)
    effects = by_name(rank(table, ["family", "window", "embedding", "noise"], "loss", seed=0, **QUICK))
    assert effects["window"].n == int((table["family"] == "windowed").sum()) < len(table)
    assert effects["window"].verdict == SUPPORTED
    assert effects["window"].direction == "higher raises loss"
    assert effects["window"].effect_low <= 6 <= effects["window"].effect_high
    assert effects["embedding"].verdict == NOT_SEPARABLE
    assert effects["embedding"].n == effects["window"].n
    assert effects["family"].options == ("window", "embedding")
    assert effects["noise"].verdict == NOT_SEPARABLE


def test_whether_a_property_applies_can_be_the_effect_when_nothing_else_says_it() -> None:
    table = planted(2, signal=0)
    table["option"] = np.where(np.arange(60) % 2, np.random.default_rng(0).integers(1, 9, 60), np.nan)
    table["loss"] += 5 * table["option"].isna()
    assert by_name(rank(table, ["option", *PROPERTIES], "loss", seed=0, **QUICK))["option"].verdict == SUPPORTED


def test_replicates_give_a_noise_ceiling_that_r2_respects() -> None:
    table = planted(3)
    twice = pandas.concat([table, table.assign(loss=table["loss"] + np.random.default_rng(0).normal(0, 2, 60))])
    ranking = rank(twice, PROPERTIES, "loss", seed=0, **QUICK)
    assert (ranking.n_trials, ranking.n_architectures) == (120, 60)
    assert ranking.noise_ceiling is not None
    assert ranking.r2 < ranking.noise_ceiling < 1


def test_outputs_are_plain_and_keep_the_order(found: Ranking) -> None:
    frame = found.to_frame()
    assert list(frame["name"]) == [effect.name for effect in found.effects]
    assert frame["reliable"].all()
    assert frame["importance"].is_monotonic_decreasing
    assert json.loads(json.dumps(found.to_dict()))["effects"][0]["name"] == "gated"


def test_progress_tells_growing_shares() -> None:
    told: list[tuple[str, float]] = []
    rank(planted(3, 40), PROPERTIES, "loss", seed=0, progress=lambda *one: told.append(one), **QUICK)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    steps = ["surrogate", "shuffled targets", "properties that do nothing", "second surrogate", "bootstrap", "done"]
    assert list(dict.fromkeys(step for step, _ in told)) == steps


@pytest.mark.parametrize(
    ("properties", "target", "message"),
    [
        (["windwo"], "loss", "no column 'windwo' \\(did you mean 'window'"),
        (["window", "window"], "loss", "'window' is named twice"),
        (["window", "loss"], "loss", "'loss' is named twice"),
        (["window"], "norm", "target 'norm' must hold numbers"),
    ],
)
def test_bad_columns_are_named(properties: list[str], target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rank(planted(0), properties, target, seed=0, **QUICK)


def test_a_property_that_is_no_scalar_and_a_missing_group_are_named() -> None:
    with pytest.raises(InputError, match="property 'norm' holds"):
        rank(planted(0).assign(norm=[[1]] * 60), PROPERTIES, "loss", seed=0, **QUICK)
    with pytest.raises(InputError, match="'key' is empty in row 0"):
        rank(planted(0).assign(key=[None] + ["a"] * 59), PROPERTIES, "loss", seed=0, **QUICK)


# The parts: closed forms


group_lists = st.lists(st.integers(0, 14), min_size=30, max_size=60).map(lambda drawn: [*range(15), *drawn])


@settings(max_examples=25)
@given(groups=group_lists, seed=st.integers(0, 1000))
def test_replicates_never_straddle_folds_and_every_row_is_held_out_once(groups: list[int], seed: int) -> None:
    codes = np.array(groups)
    folds = make_splits(codes, 5, 1, np.random.default_rng(seed))
    for training, testing in folds:
        assert not set(codes[training]) & set(codes[testing])
    assert sorted(np.concatenate([testing for _, testing in folds])) == list(range(len(codes)))


@settings(max_examples=25)
@given(count=st.integers(12, 40), seed=st.integers(0, 1000))
def test_a_bootstrap_draws_with_replacement_and_enough_to_fold(count: int, seed: int) -> None:
    rows = bootstrap_rows(count, 10, np.random.default_rng(seed))
    assert len(rows) == count
    assert 10 <= len(np.unique(rows)) < count or len(np.unique(rows)) == count
    assert 0 <= rows.min() <= rows.max() < count


def test_holm_equals_hand_work() -> None:
    assert holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([0.6, 0.5])) == pytest.approx([1, 1])
    assert p_value_above(1.0, np.array([0.0, 1.0, 2.0])) == 3 / 4


def test_p_values_are_exact_for_a_gamma_null_and_those_of_the_shuffles_where_nothing_varies() -> None:
    """A chi-squared variable is of Pearson's type III, so its tail comes back from its first three moments."""
    null = np.random.default_rng(0).chisquare(3, size=(200_000, 1))
    for quantile in (0.5, 0.05, 0.002):
        (found,) = p_values_above(np.array([chi2.isf(quantile, 3)]), null)
        assert found == pytest.approx(quantile, rel=0.08)
    assert p_values_above(np.array([1.0, 0.0]), np.zeros((19, 2))).tolist() == [1 / 20, 1]


def test_the_noise_ceiling_has_its_closed_form() -> None:
    target = np.array([0.0, 2.0, 10.0, 12.0])
    means = np.array([1.0, 11.0])
    assert noise_ceiling(target, np.array([0, 0, 1, 1])) == pytest.approx(1 - (2 / 2) / means.var(ddof=1))
    assert noise_ceiling(target, np.arange(4)) is None
    assert noise_ceiling(np.array([0.0, 9.0, 0.0, 9.0]), np.array([0, 0, 1, 1])) == 0


def test_more_trials_come_from_the_learning_curve() -> None:
    """R²(n) = 0.4 − 20/n has R²(50) = 0 and R²(25) = −0.4, and reaches 0.1 at n = 200/3, which is 17 more."""
    assert trials_for_r2(50, 0.0, -0.4, aim=0.1) == 17
    assert trials_for_r2(50, 0.0, 0.0) is None  # no rise, no hope
    assert trials_for_r2(50, -0.5, -0.7) is None  # levels off at −0.3


def column(name: str, values: list) -> pandas.Series:
    return pandas.Series(values, name=name, dtype=object)


def test_missing_values_keep_their_row_and_get_a_flag() -> None:
    number = encode_property(column("window", [4, None, 2, 8]))
    assert number.matrix.tolist() == [[2, 1], [0, 0], [1, 1], [3, 1]]
    boolean = encode_property(column("gated", [True, None, False, True]))
    assert boolean.matrix.tolist() == [[1, 1], [0, 0], [0, 1], [1, 1]]
    text = encode_property(column("norm", ["pre", "post", None, "both"]))
    assert text.levels == ("both", "post", "pre")
    assert text.matrix.tolist() == [[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]]


def test_association_is_spearman_for_numbers_and_one_for_functions() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(size=50), random.normal(size=50)
    left, right = encode_property(pandas.Series(one, name="a")), encode_property(pandas.Series(one + other, name="b"))
    spearman = abs(pandas.Series(one).corr(pandas.Series(one + other), method="spearman"))
    assert association(left, right) == pytest.approx(spearman)
    family = random.choice(["fixed", "scalar", "windowed", "full"], 50)
    depends = np.isin(family, ["windowed", "full"])
    parts = [encode_property(pandas.Series(values, name="x")) for values in (family, depends)]
    assert association(*parts) == pytest.approx(1)
    assert association(left, parts[0]) < 0.5
