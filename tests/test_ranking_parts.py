"""The parts of the ranking against plain definitions: loops, closed forms, and scikit-learn where it has the same."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from resnas.ranking import CONSTANT, NOT_SEPARABLE, SUPPORTED, rank
from resnas.ranking.columns import encode, encode_property
from resnas.ranking.design import Design, make_design
from resnas.ranking.effects import level_means, levels_of
from resnas.ranking.evidence import agreement, make_designs
from resnas.ranking.inference import draw_in_outliers, reflected_interval, shifted_interval
from resnas.ranking.nulls import null_importance, orders, ridge_fit, within, without
from resnas.ranking.ridge import HeldOut, choose, chosen, held_out, make_splits, permuted_error
from resnas.ranking.self_test import planted_study, rates, self_test
from resnas.ranking.verdicts import verdict_of

QUICK = {"folds": 4, "repeats": 1, "bootstraps": 10, "shuffles": 20}


def table(seed: int, rows: int = 30) -> pandas.DataFrame:
    """A number, a yes/no, a family and two options that apply to one of its values."""
    random = np.random.default_rng(seed)
    family = random.choice(["fixed", "windowed", "full"], rows)
    found = pandas.DataFrame({"rate": random.uniform(size=rows), "gated": random.random(rows) < 0.5, "family": family})
    found["window"] = np.where(family == "windowed", random.choice([2.0, 4.0, 8.0], rows), np.nan)
    found["kept"] = [bool(random.random() < 0.5) if one == "windowed" else None for one in family]
    return found


def designed(frame: pandas.DataFrame, weight: float) -> tuple[Design, list[str]]:
    encoded, _ = encode([encode_property(frame[name]) for name in frame])
    return make_design(encoded, 2, weight), [one.name for one in encoded.properties]


def features_from(basis: np.ndarray, design: Design) -> np.ndarray:
    """The definition: each feature is a column of the basis, or the weighted product of two."""
    columns = []
    for one, other in design.factors:
        columns.append(basis[:, one] if one == other else design.interaction_weight * basis[:, one] * basis[:, other])
    return np.column_stack(columns)


@pytest.mark.parametrize("weight", [0.0, 0.5])
@settings(max_examples=15)
@given(seed=st.integers(0, 1000))
def test_what_a_row_lends_times_the_weights_is_what_moving_its_values_changes(weight: float, seed: int) -> None:
    design, _ = designed(table(seed), weight)
    np.testing.assert_allclose(features_from(design.basis, design), design.features)
    random = np.random.default_rng(seed)
    coefficients = random.normal(size=(design.features.shape[1], 2))
    for part in design.parts:
        rows = np.flatnonzero(part.rows)
        donors = random.permutation(rows)
        moved = design.basis.copy()
        moved[np.ix_(rows, part.moved)] = design.basis[np.ix_(donors, part.moved)]
        expected = (features_from(moved, design) - design.features)[rows] @ coefficients
        weights = design.weights(part, rows, coefficients)
        lent = design.lent(part, donors) - design.lent(part, rows)
        np.testing.assert_allclose(np.einsum("rl,rlt->rt", lent, weights), expected, atol=1e-10)


@pytest.mark.parametrize("weight", [0.0, 0.5])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_the_permuted_error_is_the_mean_over_all_donors(weight: float, seed: int) -> None:
    design, _ = designed(table(seed), weight)
    random = np.random.default_rng(seed)
    coefficients = random.normal(size=(design.features.shape[1], 1))
    target = random.normal(size=len(design.features))
    for part in design.parts:
        rows = np.flatnonzero(part.rows)
        residual = target[rows, None] - design.features[rows] @ coefficients
        found = permuted_error(design, part, rows, residual, coefficients)[:, 0]
        for position, row in enumerate(rows):
            errors = []
            for donor in rows:
                basis = design.basis[[row]].copy()
                basis[:, part.moved] = design.basis[[donor]][:, part.moved]
                errors.append((target[row] - float((features_from(basis, design) @ coefficients)[0, 0])) ** 2)
            assert found[position] == pytest.approx(np.mean(errors))


def test_importance_of_a_strong_effect_nears_its_closed_form() -> None:
    """Permuting x in y = 3x + e gives RMSE √(2·9·var x + var e) in place of sd e; a useless column gives about 0."""
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"level": random.random(2000) < 0.5, "useless": random.random(2000)})
    design, _ = designed(frame, 0.0)
    target = 3.0 * frame["level"].to_numpy() + random.normal(0, 0.5, 2000)
    splits = make_splits(np.arange(2000), 5, 1, random)
    result = held_out(design, target[:, None], 1.0, splits, design.parts)
    level, useless = (float(unit[0]) for unit in result.importance)
    assert level == pytest.approx(math.sqrt(2 * 9 * 0.25 + 0.25) - 0.5, rel=0.03)
    assert abs(useless) < 0.01
    assert result.r2()[0] == pytest.approx(1 - 0.25 / (9 * 0.25 + 0.25), abs=0.01)


def test_many_targets_at_once_are_as_one_by_one() -> None:
    design, _ = designed(table(1, 40), 0.5)
    targets = np.random.default_rng(1).normal(size=(40, 3))
    splits = make_splits(np.arange(40), 4, 2, np.random.default_rng(0))
    together = held_out(design, targets, 2.0, splits, design.parts)
    for number in range(3):
        alone = held_out(design, targets[:, [number]], 2.0, splits, design.parts)
        np.testing.assert_allclose(alone.r2()[0], together.r2()[number])
        for one, all_targets in zip(alone.importance, together.importance, strict=True):
            np.testing.assert_allclose(one[0], all_targets[number])
        choice = choose([design], targets[:, [number]])
        assert choice.penalty[0] == choose([design], targets).penalty[number]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), penalty=st.floats(0.1, 100))
def test_the_ridge_fit_is_scikit_learns_and_leverage_is_its_derivative(seed: int, penalty: float) -> None:
    random = np.random.default_rng(seed)
    features, target = random.normal(size=(20, 6)), random.normal(size=20)
    fitted, leverage = ridge_fit(features, target, penalty)
    np.testing.assert_allclose(fitted, Ridge(penalty).fit(features, target).predict(features), atol=1e-8)
    for row in range(3):
        nudged = target.copy()
        nudged[row] += 1.0
        change = Ridge(penalty).fit(features, nudged).predict(features)[row] - fitted[row]
        assert leverage[row] == pytest.approx(change)


def test_a_null_target_keeps_the_fit_and_exchanges_rows_only_among_their_like() -> None:
    random = np.random.default_rng(0)
    rows = random.random(30) < 0.4
    order = within(rows, random.permutation(30))
    assert sorted(order) == list(range(30))
    assert (rows[order] == rows).all()
    design, _ = designed(table(0), 0.0)
    target = random.normal(size=30)
    fitted, leverage = ridge_fit(design.features[:, :2], target, 1.0)
    made = without(design, np.array([0, 1]), target, 1.0, [order])[:, 0]
    residual = (target - fitted) / (1 - leverage)
    np.testing.assert_allclose(made - fitted, (residual - residual.mean())[order])


def test_the_null_of_a_unit_is_the_whole_ranking_of_targets_in_which_it_does_nothing() -> None:
    """One by one: choose for the null target, cross-validate it, and take the unit's importance over the error."""
    of_weight = [designed(table(3, 40), weight)[0] for weight in (0.0, 0.5)]
    random = np.random.default_rng(3)
    target = 2 * of_weight[0].basis[:, 0] + random.normal(size=40)
    splits = make_splits(np.arange(40), 4, 2, random)
    shuffled = orders(40, 3, random)
    found = null_importance(of_weight, target, shuffled, splits)
    design, penalty = chosen(of_weight, target)
    assert found.shape == (3, len(design.parts))
    for unit, part in enumerate(design.parts):
        for number, order in enumerate(shuffled):
            made = without(design, part.rest, target, penalty, [within(part.rows, order)])
            its_design, its_penalty = chosen(of_weight, made[:, 0])
            alone = held_out(its_design, made, its_penalty, splits, its_design.parts)
            assert found[number, unit] == pytest.approx(alone.relative_importances()[unit])


def test_the_correction_makes_a_useless_model_give_the_plain_means() -> None:
    frame = table(3, 40)
    encoded, _ = encode([encode_property(frame[name]) for name in frame])
    design = make_design(encoded, 2, 0.5)
    target = np.random.default_rng(0).normal(size=(40, 1))
    nothing = HeldOut(target, target, target**2, (), (), np.zeros((design.features.shape[1], 1)))
    for position, one in enumerate(encoded.properties):
        levels = levels_of(position, encoded, frame[one.name].tolist())
        for level, mean in enumerate(level_means(design, levels, nothing)):
            assert mean == pytest.approx(target[levels.of_row == level].mean())


def test_a_perfect_model_gives_the_partial_dependence_by_brute_force() -> None:
    frame = table(4, 40)
    encoded, _ = encode([encode_property(frame[name]) for name in frame])
    design = make_design(encoded, 2, 0.5)
    coefficients = np.random.default_rng(0).normal(size=(design.features.shape[1], 1))
    target = design.features @ coefficients
    perfect = HeldOut(target, np.zeros_like(target), np.zeros_like(target), (), (), coefficients)
    for position, one in enumerate(encoded.properties):
        levels = levels_of(position, encoded, frame[one.name].tolist())
        part = design.parts[levels.part]
        for level, mean in enumerate(level_means(design, levels, perfect)):
            predictions = []
            for row in np.flatnonzero(levels.rows):
                for donor in np.flatnonzero(levels.of_row == level):
                    basis = design.basis[[row]].copy()
                    basis[:, part.moved] = design.basis[[donor]][:, part.moved]
                    predictions.append(float((features_from(basis, design) @ coefficients)[0, 0]))
            assert mean == pytest.approx(np.mean(predictions))


def test_numbers_are_compared_by_fifths_or_by_their_values() -> None:
    tied = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [10, 10, 10, 10, 5, 5])
    frame = pandas.DataFrame({"many": np.arange(50.0), "few": np.tile([4, 8, 12], 17)[:50], "tied": tied})
    encoded, _ = encode([encode_property(frame[name]) for name in frame])
    many, few, ties = (levels_of(position, encoded, frame[name].tolist()) for position, name in enumerate(frame))
    assert many.names[0] == "0 to 9"
    assert np.bincount(many.of_row).tolist() == [10] * 5
    assert few.names == ("4", "8", "12")
    assert ties.names == ("1", "2", "3", "4", "5 to 6")


def test_the_basis_is_centred_orthogonal_and_of_one_size() -> None:
    frame = table(5, 300)
    for name in frame:
        one = encode_property(frame[name])
        inside = one.basis(2)[one.applies]
        width = one.basis(2).shape[1] - (not one.applies.all())
        np.testing.assert_allclose(inside[:, :width].mean(axis=0), 0, atol=1e-9)
        assert inside[:, :width].var(axis=0).sum() == pytest.approx(1)
        assert not one.basis(2)[~one.applies][:, :width].any()
    straight, parabola = encode_property(frame["rate"]).basis(2).T
    assert abs(np.corrcoef(straight, parabola)[0, 1]) < 1e-9


def test_the_surrogate_is_as_rich_as_the_study_needs() -> None:
    frame = table(6, 120)
    designs = make_designs(encode([encode_property(frame[name]) for name in frame])[0])
    rank_of_rate = frame["rate"].rank().to_numpy() / 60 - 1
    gated = np.where(frame["gated"], 1.0, -1.0)
    noise = np.random.default_rng(6).normal(0, 0.5, 120)
    for signal, degree, weight in [
        (rank_of_rate, 1, 0.0),
        (3 * rank_of_rate**2, 2, 0.0),
        (2 * gated * rank_of_rate, 2, 0.5),
    ]:
        design, _ = chosen(designs, signal + noise)
        assert (design.degree, design.interaction_weight) == (degree, weight)


def test_an_effect_that_is_only_a_curve_is_supported() -> None:
    planted = planted_study(8, 100, 0.0)
    rate = planted.table["property_1"].rank().to_numpy() / 50 - 1
    planted.table["target"] += 3 * rate**2
    effects = {one.name: one for one in rank(planted.table, list(planted.effects), "target", seed=0, **QUICK).effects}
    assert effects["property_1"].verdict == SUPPORTED
    assert effects["property_1"].direction == "no clear direction"


def test_one_wild_trial_does_not_rule() -> None:
    planted = planted_study(1, 100, 2.0)
    wild = planted.table.copy()
    wild.loc[7, "target"] = 1e6
    names = list(planted.effects)
    one, other = (rank(frame, names, "target", seed=0, **QUICK) for frame in (planted.table, wild))
    supported = [{effect.name for effect in ranking.effects if effect.verdict == SUPPORTED} for ranking in (one, other)]
    assert supported[0] == supported[1] == set(planted.true)
    assert (one.n_outliers, other.n_outliers) == (0, 1)


def test_fences_are_tukeys() -> None:
    target = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 100.0])
    low, high = np.quantile(target, [0.25, 0.75])
    drawn_in, count = draw_in_outliers(target)
    assert count == 1
    assert drawn_in.tolist() == [0, 1, 2, 3, 4, high + 3 * (high - low)]
    assert draw_in_outliers(np.array([1.0] * 9 + [5.0]))[1] == 0


def test_an_interaction_is_found_said_and_absent_from_an_additive_study() -> None:
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({name: random.random(120) < 0.5 for name in ("one", "two", "three")})
    frame["key"] = np.arange(120).astype(str)
    signs = np.where(frame[["one", "two"]], 1.0, -1.0)
    noise = random.normal(0, 0.5, 120)
    found = {}
    for kind, signal in {"product": signs.prod(axis=1), "sum": signs.sum(axis=1)}.items():
        ranking = rank(frame.assign(loss=signal + noise), ["one", "two", "three"], "loss", seed=0, **QUICK)
        found[kind] = {frozenset((one.one, one.other)): one for one in ranking.interactions}
        dependences = "effects that depend on one another: "
        assert (dependences in ranking.sentence()) == (kind == "product")
    pair = frozenset(("one", "two"))
    assert found["product"][pair].verdict == SUPPORTED
    assert found["product"][pair].size == pytest.approx(1, abs=0.15)  # the product of signs has standard deviation 1
    assert found["sum"][pair].verdict == NOT_SEPARABLE


def test_checks_agree_where_effects_are_strong_and_name_what_was_done() -> None:
    planted = planted_study(2, 100, 4.0)
    origin = ["random"] * 60 + ["tpe"] * 40
    ranking = rank(planted.table.assign(origin=origin), list(planted.effects), "target", seed=0, **QUICK)
    names = ["extremely randomised trees", "ranks of the target", "random architectures only"]
    assert [check.name for check in ranking.checks] == names
    assert ranking.n_random == 60
    assert all(check.agreement > 0.3 and check.r2 > 0.3 for check in ranking.checks)
    assert agreement(np.array([3.0, 2.0, 1.0]), np.array([9.0, 8.0, 0.0])) == pytest.approx(1)
    assert agreement(np.array([1.0]), np.array([1.0])) is None


def test_a_verdict_needs_all_of_its_parts() -> None:
    assert verdict_of(0.01, 1.0, 0.2, 0.5) == SUPPORTED
    for p_value, importance, low, second in [(0.06, 1, 0.2, 0.5), (0.01, 1, -0.1, 0.5), (0.01, 1, 0.2, 0.01)]:
        assert verdict_of(p_value, importance, low, second) == "suggestive"
    assert verdict_of(0.2, 1.0, 0.2, 0.5) == verdict_of(0.01, 0.0, 0.2, 0.5) == NOT_SEPARABLE


@settings(max_examples=20)
@given(st.lists(st.floats(-100, 100), min_size=5, max_size=30), st.floats(-10, 10))
def test_intervals_move_with_the_estimate_and_reflect_its_bias(draws: list[float], estimate: float) -> None:
    column, at = np.array(draws)[:, None], np.array([estimate])
    low, high = shifted_interval(at, column)
    middle, reflected_low, reflected_high = reflected_interval(at, column)
    assert low[0] <= estimate <= high[0]
    assert reflected_low[0] <= middle[0] <= reflected_high[0]
    assert middle[0] == pytest.approx(2 * estimate - float(np.median(draws)))
    assert high[0] - low[0] == pytest.approx(reflected_high[0] - reflected_low[0])


# The self-test: what it counts, and the rates that it must reach


def test_a_planted_study_has_the_signal_that_it_names() -> None:
    planted = planted_study(0, 20_000, 0.5)
    assert len(planted.true) == 2
    assert planted.table["target"].var() == pytest.approx(1.5, rel=0.03)
    for name, effect in planted.effects.items():
        column = planted.table[name]
        if pandas.api.types.is_numeric_dtype(column) and column.dtype != bool:
            fifth = pandas.qcut(column, 5, labels=False)
            means = planted.table["target"].groupby(fifth).mean()
            assert means[4] - means[0] == pytest.approx(effect, abs=0.1)
        else:
            means = planted.table["target"].groupby(column).mean()
            assert means.max() - means.min() == pytest.approx(effect, abs=0.08)
    assert planted_study(0, 50, 0.0).true == ()


def test_rates_count_what_they_say() -> None:
    planted = planted_study(1, 100, 4.0)
    names = list(planted.effects)
    ranking = rank(planted.table, names, "target", seed=0, **QUICK)
    found = rates("strong", [(planted, ranking)])
    assert (found.reliable, found.all_true, found.any_false) == (1, 1, 0)
    assert found.intervals == sum(effect.verdict != CONSTANT for effect in ranking.effects)
    swapped = rates("swapped", [(planted_study(1, 100, 0.0), ranking)])
    assert swapped.any_false == 1
    assert swapped.all_true is None


@pytest.mark.slow
def test_the_protocol_keeps_to_its_error_rate_and_finds_what_is_there() -> None:
    """The bars of the README, with room for the chance of so few studies (two standard errors)."""
    noise, half, one = self_test(STUDIES, seed=1000, shuffles=200, bootstraps=50)
    assert noise.any_false <= at_most(0.05)
    for planted, power in ((half, 0.75), (one, 0.95)):
        assert planted.any_false <= at_most(0.05)
        assert planted.all_true is not None
        assert planted.all_true >= 1 - at_most(1 - power)
    assert half.coverage is not None
    assert one.coverage is not None
    assert 0.82 <= (half.coverage + one.coverage) / 2 <= 0.97  # the README's 85 to 95 %


STUDIES = 16


def at_most(share: float) -> float:
    return share + 2 * math.sqrt(share * (1 - share) / STUDIES)
