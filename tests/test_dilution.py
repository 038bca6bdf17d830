"""Dilution in closed form: sources whose shares are known, losses whose effective depth is known, planted slopes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_model import batch, made

from resnas import dilution as d

SUBLAYERS = 12


def orthogonal_sources(sizes):
    return [size * torch.eye(len(sizes), dtype=torch.float64)[i].repeat(3, 1) for i, size in enumerate(sizes)]


def newest_shares(matrix_row, sources):
    return [float(d.shares(matrix_row(read), sources[:read])[-1]) for read in range(2, len(sources) + 1)]


def ones(read):
    return torch.ones(1, read, 1, dtype=torch.float64)


def only_newest(read):
    row = torch.zeros(1, read, 1, dtype=torch.float64)
    row[:, -1] = 1
    return row


def test_equal_orthogonal_sources_in_the_fixed_stream_have_shares_one_over_l_and_dilution_one():
    sources = orthogonal_sources([2.0] * (SUBLAYERS + 1))
    for read in range(1, SUBLAYERS + 2):
        torch.testing.assert_close(
            d.shares(ones(read), sources[:read]), torch.full((read,), 1 / read, dtype=torch.float64)
        )
    assert d.dilution(newest_shares(ones, sources)) == pytest.approx(1, abs=1e-12)


def test_a_chain_has_no_dilution():
    sources = orthogonal_sources([1.0] * (SUBLAYERS + 1))
    assert d.dilution(newest_shares(only_newest, sources)) == 0


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=12), st.floats(1e-3, 1e3), st.integers(0, 100))
def test_scaling_all_sources_changes_nothing_and_shares_sum_to_one(sizes, factor, seed):
    generator = torch.Generator().manual_seed(seed)
    sources = [size * torch.randn(3, 5, dtype=torch.float64, generator=generator) for size in sizes]
    row = torch.randn(3, len(sizes), 1, dtype=torch.float64, generator=generator)
    share = d.shares(row, sources)
    assert float(share.sum()) == pytest.approx(1)
    torch.testing.assert_close(d.shares(row, [factor * source for source in sources]), share)
    torch.testing.assert_close(d.shares(factor * row, sources), share)


def test_weights_per_channel_count_channel_by_channel():
    sources = [torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)]
    row = torch.tensor([[[3.0, 4.0], [0.0, 5.0]]], dtype=torch.float64)
    torch.testing.assert_close(d.shares(row, sources), torch.tensor([0.5, 0.5], dtype=torch.float64))


@given(st.floats(-3, 3), st.floats(0.01, 100), st.integers(4, 40))
def test_slope_of_a_power_law_is_its_exponent(exponent, factor, count):
    positions = range(1, count + 1)
    assert d.slope([factor * position**exponent for position in positions], positions) == pytest.approx(
        exponent, abs=1e-9
    )


def test_a_few_tiny_shares_do_not_move_the_dilution_of_the_rest():
    """Least squares would: early reads that hardly use the newest source used to give slopes of -2."""
    shares = [1 / read for read in range(2, 18)]
    shares[0], shares[1] = 1e-6, 1e-4
    assert d.dilution(shares) == pytest.approx(1, abs=0.15)
    least_squares = -np.polyfit(np.log(np.arange(2, 18)), np.log(shares), 1)[0]
    assert abs(least_squares - 1) > 1


def test_effective_depth_and_late_share_of_known_losses():
    assert d.effective_depth([2.0] * 8, 1.0) == pytest.approx(1)
    assert d.effective_depth([2.0] + [1.0] * 7, 1.0) == pytest.approx(1 / 8)
    assert d.effective_depth([2.0, 2.0, 0.5, 1.0], 1.0) == pytest.approx(0.5)  # a loss that falls counts as none
    assert d.effective_depth([1.0] * 4, 1.0) == 0
    assert d.late_share([2.0] * 8, 1.0) == pytest.approx(0.5)
    assert d.late_share([1.0, 1.0, 1.0, 3.0], 1.0) == 1
    assert d.late_share([1.0] * 4, 1.0) == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(0.01, 100))
def test_gini_is_half_the_relative_mean_difference(values, factor):
    mean = sum(values) / len(values)
    pairs = [abs(a - b) for a in values for b in values]
    expected = sum(pairs) / len(pairs) / (2 * mean) if mean > 0 else 0
    assert d.gini(values) == pytest.approx(expected, abs=1e-9)
    assert d.gini([factor * value for value in values]) == pytest.approx(d.gini(values), abs=1e-9)


def test_gini_of_equal_and_of_one_owner():
    assert d.gini([3.0] * 7) == pytest.approx(0)
    assert d.gini([0, 0, 0, 5.0]) == pytest.approx(3 / 4)


def test_routing_entropy_and_reach():
    assert d.routing_entropy(ones(5)) == pytest.approx(1)
    assert d.routing_entropy(only_newest(5)) == pytest.approx(0, abs=1e-9)
    assert d.mean_reach(torch.tensor([0.0, 0.0, 1.0])) == 1
    assert d.mean_reach(torch.full((4,), 0.25)) == pytest.approx(2.5)


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
@pytest.mark.parametrize(
    "residual",
    ["fixed", "scalar_learned", "full_depth_attention", {"windowed_depth_attention": {"window": 2}}],
    ids=str,
)
def test_measurement_of_a_model(norm, residual):
    model = made(norm=norm, residual=residual)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    measured = d.measure(model, batch())
    sublayers = model.architecture.sublayers
    assert all(math.isfinite(value) for value in measured.metrics.values())
    assert 0 <= measured.metrics["effective_depth"] <= 1
    assert 0 <= measured.metrics["late_share"] <= 1
    assert [len(row) for row in measured.matrix] == list(range(1, sublayers + 2))
    assert len(measured.profiles["newest_share"]) == len(measured.profiles["hidden_size"]) == sublayers
    assert model.training
    assert all(
        parameter.grad is None and torch.equal(parameter, before[name]) for name, parameter in model.named_parameters()
    )
    assert d.measure(model, batch()).metrics == measured.metrics


def test_removing_a_sublayer_is_the_loss_of_the_network_without_it():
    """In the fixed stream, removing sublayer l must equal a stack that skips it."""
    from resnas.model import loss_function

    model = made(scramble=True)
    inputs, targets = batch()
    measured = d.measure(model, (inputs, targets))
    h = model.embedding(inputs)
    for number, sublayer in enumerate(model.sublayers, start=1):
        if number != 3:
            h = h + sublayer(h)
    without = loss_function(model.head(model.final_norm(h)), targets)
    loss = loss_function(model(inputs), targets)
    assert measured.profiles["loss_increase_without"][2] == pytest.approx(float((without - loss).detach()), rel=1e-6)


def test_gradient_sizes_are_those_of_the_loss_at_the_outputs():
    """A finite difference along an output's own direction equals its gradient there."""
    model = made(scramble=True, residual="full_depth_attention")
    inputs, targets = batch()
    from resnas.model import loss_function

    def loss_with(scale):
        return float(
            loss_function(
                model(inputs, lambda number, output: output * scale if number == 2 else output), targets
            ).detach()
        )

    captured = []

    def keep(number, output):
        if number == 2:
            captured.append(output)
        return output

    gradient = torch.autograd.grad(loss_function(model(inputs, keep), targets), captured)[0]
    along = float((gradient * captured[0].detach()).sum())
    assert (loss_with(1 + 1e-6) - loss_with(1 - 1e-6)) / 2e-6 == pytest.approx(along, rel=1e-5)
    measured = d.measure(model, (inputs, targets))
    assert measured.profiles["gradient_size"][1] == pytest.approx(float(gradient.norm() * captured[0].detach().norm()))
