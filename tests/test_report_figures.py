"""The numbers behind the figures in closed form, and the words of cases that a small study does not meet."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resnas.comparison import Trained
from resnas.ranking import CONSTANT, NOT_SEPARABLE, SUPPORTED, Check, Interaction, LevelMean, PropertyEffect, Ranking
from resnas.report import Material, study_figures, write_report
from resnas.report.answer import answer, disagreements
from resnas.report.depth_figures import profile_figure
from resnas.report.page import html
from resnas.report.point_figures import scatter_figure
from resnas.report.profiles import against_even, band
from resnas.report.ranking_figures import effect_figure, importance_figure
from resnas.report.style import FAMILIES, FURTHER, VERDICTS, family_marks
from resnas.report.words import duration, number
from resnas.search import load_trials


def test_a_band_is_the_mean_and_the_middle_ninety_percent_over_architectures():
    profiles = [np.array([float(k), 2.0 * k]) for k in range(101)]
    one = band("fixed", 4, profiles, first=2)
    assert (one.n, one.positions) == (101, [2, 3])
    assert one.mean == pytest.approx([50, 100])
    assert one.low == pytest.approx([5, 10])
    assert one.high == pytest.approx([95, 190])
    half = 1.660 * np.std([float(k) for k in range(101)], ddof=1) / math.sqrt(101)
    assert one.mean_low == pytest.approx([50 - half, 100 - 2 * half], rel=1e-3)
    assert one.mean_high == pytest.approx([50 + half, 100 + 2 * half], rel=1e-3)
    assert band("fixed", 4, profiles[:1], first=2).mean_low is None


def test_a_logarithmic_band_is_the_same_band_of_the_logarithms():
    profiles = [np.array([2.0**k, 3.0]) for k in range(5)]
    one = band("fixed", 4, profiles, 1, logarithmic=True)
    of_logs = band("fixed", 4, [np.log(values) for values in profiles], 1)
    assert one.mean == pytest.approx([4, 3])
    for name in ("mean", "mean_low", "mean_high"):
        assert getattr(one, name) == pytest.approx(np.exp(getattr(of_logs, name)))
    assert min(band("fixed", 4, [np.zeros(2), np.ones(2)], 1, logarithmic=True).mean) > 0


def test_the_reference_is_one_over_the_read_and_a_prenorm_profile_lies_on_it():
    prenorm = np.array([1 / read for read in range(2, 10)])
    figure = profile_figure([band("fixed", 4, [prenorm], 2)], "read", "newest share", logarithmic=True, reference=True)
    line = next(trace for trace in figure.data if trace.name == "fixed, depth 4 (n = 1)")
    reference = next(trace for trace in figure.data if trace.name and "1/l" in trace.name)
    assert reference.line.dash == "dot"
    assert list(reference.x) == list(line.x) == list(range(2, 10))
    assert list(reference.y) == pytest.approx(prenorm.tolist())
    assert list(line.y) == pytest.approx(prenorm.tolist())
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_many_depths_start_with_the_one_that_most_architectures_have():
    flat = np.ones(3)
    drawn = [band(family, depth, [flat] * n, 2) for family in "abc" for depth, n in ((2, 1), (4, 3))]
    figure = profile_figure(drawn, "read", "share")
    shown = {trace.name: trace.visible for trace in figure.data if trace.name}
    assert {name: state for name, state in shown.items() if "depth 4" in name} == {
        f"{family}, depth 4 (n = 3)": True for family in "abc"
    }
    assert all(state == "legendonly" for name, state in shown.items() if "depth 2" in name)


@given(st.integers(1, 9), st.floats(0.01, 100))
def test_an_even_split_is_neutral_whatever_its_scale(reads, weight):
    relative = against_even([[weight] * read for read in range(1, reads + 1)])
    for read, row in enumerate(relative, start=1):
        assert row[:read] == pytest.approx([0.0] * read, abs=1e-12)
        assert row[read:] == [None] * (reads - read)


def test_a_source_that_is_not_read_is_blank_and_the_only_one_read_is_far_above_even():
    assert against_even([[1.0], [0.0, 3.0], [0.0, 0.0, 0.0]]) == [
        [0.0, None, None],
        [None, 1.0, None],
        [None, None, None],
    ]


def test_families_keep_their_marks_and_foreign_ones_get_others():
    marks = family_marks(["my.module:Mine", "full_depth_attention", "my.module:Other"])
    assert marks["full_depth_attention"] == FAMILIES["full_depth_attention"]
    assert [marks["my.module:Mine"], marks["my.module:Other"]] == FURTHER[:2]
    every = [*FAMILIES.values(), *FURTHER]
    assert len({mark.colour for mark in every}) == len({mark.symbol for mark in every}) == len(every)


def effect(name: str, value: float, verdict: str = SUPPORTED, **more) -> PropertyEffect:
    size = {
        "importance_low": value - 0.01,
        "importance_high": value + 0.02,
        "effect_low": -value - 1,
        "effect_high": 0.0,
    }
    values = {"importance": value, "effect": -value, "direction": "higher lowers it", "p_value": 0.01, "n": 50} | size
    values |= {"second_importance": value / 3, "leader_share": 0.87}
    values["levels"] = (LevelMean("4", 1.25, 1.1, 1.4, 20), LevelMean("8 to 12", 0.75, 0.7, 0.9, 30))
    return PropertyEffect(name, verdict=verdict, **(values | more))


def ranking(*effects: PropertyEffect, refusal: str | None = None) -> Ranking:
    return Ranking(
        target="dilution",
        seed=0,
        n_trials=50,
        n_architectures=50,
        n_excluded=0,
        r2=0.5,
        r2_low=0.3,
        r2_high=0.6,
        p_value=0.01,
        noise_ceiling=None,
        reliable=refusal is None,
        refusal=refusal,
        effects=effects,
        interactions=(Interaction("reach", "depth", 0.123, 0.21, NOT_SEPARABLE),),
        checks=(Check("trees", 0.375, 0.8125),),
        surrogate="ridge regression",
        n_random=40,
    )


GROUPED = ranking(
    effect("reach", 0.5, correlated_with=("window_sources",)),
    effect("window_sources", 0.5, correlated_with=("reach",)),
    effect("depth", 0.2, NOT_SEPARABLE),
    effect("width", 0.0, CONSTANT),
)


def test_the_figures_of_a_ranking_show_each_group_once_with_its_interval_and_verdict():
    assert [one.name for one in GROUPED.moved_together()] == ["reach", "depth"]
    importance = {trace.name: trace for trace in importance_figure(GROUPED).data}
    assert set(importance) == {SUPPORTED, NOT_SEPARABLE}
    assert all(trace.marker.symbol in {mark.symbol for mark in VERDICTS.values()} for trace in importance.values())
    supported = importance[SUPPORTED]
    assert list(supported.y) == ["reach + 1"]
    assert list(supported.x) == [0.5]
    assert supported.error_x.array == pytest.approx([0.02])
    assert supported.error_x.arrayminus == pytest.approx([0.01])
    assert supported.marker.color == VERDICTS[SUPPORTED].colour
    sizes = {trace.name: trace for trace in effect_figure(GROUPED).data}
    assert list(sizes[NOT_SEPARABLE].x) == [-0.2]


def test_a_refused_ranking_has_its_sentence_and_no_bars(finished_study):
    refused = ranking(effect("reach", 0.5), refusal="no reliable ranking: too <few> trials")
    figure = importance_figure(refused)
    assert len(figure.data) == 0
    assert "too &lt;few&gt; trials" in figure.layout.annotations[0].text
    page = html(Material(finished_study, load_trials(finished_study)), [refused])
    assert "too &lt;few&gt; trials" in page
    assert 'id="figure-importance-dilution"' not in page
    accepted = html(Material(finished_study, load_trials(finished_study)), [GROUPED])
    assert 'id="figure-importance-dilution"' in accepted
    assert '<span class="verdict supported">supported</span>' in accepted
    assert "moved together with the next one" in accepted


def material(*rows: dict, objectives: dict | None = None) -> Material:
    """Return material whose compared rows are given; the study is only asked for its objectives and families."""
    one = object.__new__(Material)
    objectives = objectives or {"val_loss": "minimize"}
    study = SimpleNamespace(objectives=objectives, directions=objectives, limits={})
    one.__dict__.update(study=study, trials=(), rows=list(rows), compared=list(rows))
    return one


def row(key: str, family: str, loss: float, **more) -> dict:
    known = {"number": 0, "key": key, "label": f"{family} {key}", "family": family, "depth": 2, "ending": "complete"}
    return known | {"val_loss": loss, "dilution": 1.0, "effective_depth": 0.5, "data_sha256": ""} | more


def test_a_clear_difference_over_seeds_has_an_interval_and_noise_does_not_pass():
    clear = [row("a", "full", 1.0 + 0.01 * seed) for seed in range(4)]
    baseline = [row("b", "fixed", 2.0 + 0.01 * seed) for seed in range(4)]
    sure = answer(material(*clear, *baseline))
    assert "full a" in sure.finding
    assert "fixed b" in sure.finding
    assert "a difference of −1 nats" in sure.finding
    assert "larger than the luck of seeds explains" in sure.certainty
    assert "(90 % interval over seeds −1.02 to −0.982, Welch)" in sure.finding
    noisy = [row("a", "full", 1.9), row("a", "full", 2.1), row("b", "fixed", 1.8), row("b", "fixed", 2.3)]
    assert "no more than the luck of seeds" in answer(material(*noisy)).certainty
    single = [row("a", "full", 1.0), row("b", "fixed", 2.0)]
    assert "How sure: not known" in answer(material(*single)).certainty
    assert "any other family" in answer(material(row("a", "full", 2.0), row("b", "fixed", 1.0))).finding
    assert "no other family" in answer(material(row("b", "fixed", 1.0))).finding


def test_a_larger_objective_is_better_where_the_study_says_so():
    rows = [row(key, family, 0.0, accuracy=value + 0.01 * seed) for seed in range(3) for key, family, value in CASES]
    found = answer(material(*rows, objectives={"accuracy": "maximize"}))
    assert found.finding.startswith("The best of 2 architectures is full a, with accuracy 0.91")
    assert "larger than the luck of seeds explains" in found.certainty


CASES = [("a", "full", 0.9), ("b", "fixed", 0.5)]


def test_what_dilution_praises_and_others_do_not_is_listed():
    fair = [
        row(f"k{i}", "fixed", 2.0 + 0.1 * i, dilution=0.5 + 0.1 * i, effective_depth=0.9 - 0.1 * i) for i in range(8)
    ]
    assert disagreements(material(*fair)) == []
    forgetful = row("chain", "window", 9.0, dilution=-1.0, effective_depth=0.01)
    (found,) = disagreements(material(*fair, forgetful))
    assert found.trained.key == "chain"
    assert "effective_depth 0.01 and val_loss 9 in the worst third" in found.sentence


def test_the_pareto_front_of_a_figure_is_that_of_all_objectives():
    points = [("a", 1.0, 3.0), ("b", 2.0, 2.0), ("c", 3.0, 3.0)]
    architectures = [Trained((row(key, "fixed", loss, dilution=other),)) for key, loss, other in points]
    figure = scatter_figure(architectures, "val_loss", "dilution", {"val_loss": "minimize", "dilution": "minimize"})
    front = next(trace for trace in figure.data if trace.name.startswith("Pareto front"))
    assert list(zip(front.x, front.y, strict=True)) == [(1.0, 3.0), (2.0, 2.0)]


def copied(study, folder):
    """Return the study with a results folder of its own, which a test may spoil."""
    shutil.copytree(study.path.parent, folder, dirs_exist_ok=True)
    return type(study).load(folder / study.path.name)


def test_lost_measurements_are_left_out_and_said_so(finished_study, tmp_path):
    study = copied(finished_study, tmp_path)
    for path in (study.results_folder / "trials").glob("*/result.json"):
        path.unlink()
    (study.results_folder / "environment.json").write_text("not JSON")
    trials = load_trials(study)
    drawn = {one.id for one in study_figures(Material(study, trials), [])}
    assert "loss-against-dilution" in drawn
    assert not any(name.startswith(("matrix", "newest", "hidden")) for name in drawn)
    page = write_report(Material(study, trials), []).read_text()
    assert "4 complete trials without measurements over depth" in page


def test_nothing_at_all_is_a_report_that_says_so(finished_study, tmp_path):
    study = copied(finished_study, tmp_path)
    shutil.rmtree(study.results_folder)
    page = write_report(Material(study, []), []).read_text()
    for words in ("No trial was completed", "No trial was started yet", "No ranking was made", "Glossary"):
        assert words in page, words
    assert study_figures(Material(study, []), []) == []
    assert not list(study.results_folder.glob("*.partial"))


def test_baselines_and_several_objectives_are_reported(finished_study, tmp_path):
    copied(finished_study, tmp_path)
    study = type(finished_study).load(tmp_path / finished_study.path.name, ["objectives=[val_loss, dilution]"])
    environment = {"versions": {"torch": "9.9"}, "baselines": {"bits_per_byte/gzip": 2.5}, "cpus": 3}
    (study.results_folder / "environment.json").write_text(json.dumps(environment))
    trials = load_trials(study)
    page = write_report(Material(study, trials), []).read_text()
    for words in ("gzip 2.5 bits_per_byte", "torch 9.9", "3 CPUs", "the Pareto front", 'id="figure-pareto-front"'):
        assert words in page, words
    assert {"best-so-far-val_loss", "best-so-far-dilution"} <= {
        one.id for one in study_figures(Material(study, trials), [])
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.25, "−0.25"), (247344, "247\u202f344"), (0.123456, "0.1235"), (None, "–"), (math.nan, "–"), (3, "3")],
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(1.25, "1.2 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")])
def test_durations_are_written_in_two_units(seconds, text):
    assert duration(seconds) == text
