"""The benchmark: its peers compute what they claim, its figures come from real runs, and mixing stays cheap."""

import json
import re
from dataclasses import replace

import pytest
import torch
from test_residual import assert_equal, random_rule, value_and_gradients
from torch.profiler import ProfilerActivity, profile

from resnas.bench import Case, Measured, Variant, jobs, measured
from resnas.bench.peers import Definition, StackedAttention
from resnas.bench.run import FIXED
from resnas.cli import main
from resnas.errors import InputError
from resnas.model import Model, loss_function
from resnas.residual import Fixed, FullDepthAttention, ScalarLearned, WindowedDepthAttention
from resnas.residual.stream import TapeStream

FULL = Variant(FullDepthAttention())
CASE = Case(depth=1, width=16, tokens=32, context=16, threads=1, warmup=1, repeats=2)


def test_peers_equal_the_engine_in_values_and_gradients():
    rule = random_rule(FullDepthAttention())
    stacked = StackedAttention(rule.sublayers, rule.width).double()
    with torch.no_grad():
        stacked.queries[1:] = rule.queries
    engine, stream = value_and_gradients(rule.start, rule)
    assert isinstance(stream, TapeStream)
    definition, _ = value_and_gradients(Definition(rule).start, rule)
    assert_equal(definition, engine)
    found, _ = value_and_gradients(stacked.start, stacked)
    found[-1] = found[-1][1:]  # read 1 has one source, so its query does nothing
    assert_equal(found, engine)


def test_fixed_is_always_measured_and_equal_topologies_once():
    window = Variant(WindowedDepthAttention(window=8))
    made = jobs(CASE, [FULL, window], [Variant(FullDepthAttention(), "stack")])
    assert made[0].variants == (FIXED, FULL)  # a window of eight is full attention here
    assert [job.function for job in made].count("peak_memory_bytes") == 3
    assert all(job.variants[0] == FIXED for job in made if job.function == "step_times_s")


def test_ratios_are_medians_of_rounds_not_ratios_of_medians():
    one = Measured(CASE, FULL, step_times_s=[2.0, 30.0, 4.4], fixed_times_s=[1.0, 10.0, 4.0])
    row = one.row()
    assert row["ratio"] == 2.0
    assert (row["ratio_q1"], row["ratio_q3"]) == (1.55, 2.5)
    assert row["step_ms"] == 4400


@pytest.mark.slow
def test_real_figures_of_every_kind_and_a_failure_that_is_named():
    refused = replace(CASE, device="nowhere")
    assert all("nowhere" in one.failures[0] for one in measured(refused, [FULL], []))
    fixed, full = measured(CASE, [FULL], [])
    for one in (fixed, full):
        assert not one.failures
        assert len(one.step_times_s) == CASE.repeats
        assert min(one.step_times_s) > 0
        assert 0 < one.peak_memory_bytes < 2**30
        assert min(one.token_times_s) > 0
    assert fixed.ratios == [1.0] * CASE.repeats
    assert full.fixed_times_s == fixed.step_times_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"tokens": 33}, "tokens 33 are not whole examples of context 16"), ({"width": 18}, "width 18 is not divisible")],
)
def test_impossible_sizes(changes, message):
    with pytest.raises(InputError, match=message):
        replace(CASE, **changes)


def test_the_command_prints_json_and_writes_the_plot(tmp_path, monkeypatch, capsys):
    small = ["--width", "16", "--tokens", "32", "--repeats", "2", "--warmup", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(
        "sys.argv", ["cli.py", "bench", "--residual", "scalar_learned", "--depth", "1", *small, "--format", "json"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["residual"] for row in printed] == ["fixed", "scalar_learned"]
    assert printed[0]["ratio"] == 1
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == printed
    page = (tmp_path / "bench.html").read_text()
    assert "step time over that of fixed" in page
    assert "scalar_learned" in page


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        ("fixd", "unknown residual topology 'fixd'.*did you mean 'fixed'"),
        ("{windowed_depth_attention: {windw: 4}}", r"windw: unknown.*did you mean 'window'"),
        ("{windowed_depth_attention: {window: 0}}", "window: must be a whole number of at least 1, not 0"),
    ],
)
def test_a_wrong_topology_gets_one_sentence(residual, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["cli.py", "bench", "--residual", residual])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


@pytest.mark.parametrize("topology", [ScalarLearned(), FullDepthAttention(), WindowedDepthAttention(window=3)])
@pytest.mark.parametrize("dense_from_elements", [0, 2**60])
def test_no_loop_over_tokens(topology, dense_from_elements):
    """Where a batched product falls back to one product per token, `select` is called for each."""

    def calls(tokens: int) -> int:
        case = replace(CASE, depth=9, width=32, tokens=tokens, context=tokens)
        model = Model(case.architecture(topology), case.shape)
        model.residual.dense_from_elements = dense_from_elements
        batch = torch.randint(256, (1, tokens))
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            loss_function(model(batch), batch).backward()
        counts = {event.key: event.count for event in profiled.key_averages()}
        return counts["aten::select"]

    assert calls(24) == calls(192)


@pytest.mark.timed
def test_full_depth_attention_costs_little_and_a_stack_costs_much():
    """Sixteen layers; the bars of the issue are for thirty-two and measured by hand, these leave room for noise."""
    case = Case(depth=16, width=256, tokens=1024, context=256, threads=1, warmup=1, repeats=3)
    stack = Variant(FullDepthAttention(), "stack")
    rows = {(one.label, one.variant.implementation): one.row() for one in measured(case, [FULL], [stack])}
    full, stacked = rows["full_depth_attention", "resnas"], rows["full_depth_attention", "stack"]
    print(full, stacked)
    assert full["ratio"] < 1.25
    assert full["memory_ratio"] < 1.3
    assert stacked["ratio"] > 2.2 * full["ratio"]
    assert stacked["memory_mib"] > 2 * full["memory_mib"]


def test_the_baseline_is_the_fixed_stream():
    assert FIXED.residual == Fixed()
