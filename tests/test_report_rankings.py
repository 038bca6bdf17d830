"""The rankings in the report: what they rest on, groups as one, no figure against its verdict, Optuna's beside ours."""

import re
from collections import Counter
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import planted_study, planted_trials
from test_report_figures import GROUPED, effect, ranking

from resnas.analysis import FAILED, FEWEST_FAILED, FEWEST_TRIED, analyse, analyse_for_report, can_rank_failures
from resnas.ranking import NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, LevelMean
from resnas.ranking.effects import NO_DIRECTION
from resnas.report import Material, exhibits, study_figures, write_report
from resnas.report.level_figures import drawn_effects, level_figure, level_rows, overall_mean
from resnas.report.ranking_basis import basis
from resnas.report.ranking_figures import UNCLEAR, effect_figure
from resnas.report.ranking_tables import beside_optuna, effects, property_of
from resnas.report.style import VERDICTS
from resnas.search import load_trials
from resnas.search.importances import WHY_THEY_DIFFER
from resnas.space import SearchSpace

OTHER_WORDS = {"remainder": "pooled", "drop": "dropped"}
"""What a property calls the values of an option that goes by other words."""
SPACES = Path(__file__).parent.parent / "search_spaces"


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """Return a study in which the family moves the loss and the learning rate makes trials fail, its trials, of which
    three were pruned, and its real rankings."""
    study = planted_study(tmp_path_factory.mktemp("ranked"))
    study.ranking.targets[:] = ["val_loss"]
    trials = planted_trials(study, 150)
    for trial in [trial for trial in trials if trial.user_attrs["resnas.ending"] == "complete"][:3]:
        trial.user_attrs["resnas.ending"] = "pruned"
    return study, trials, analyse_for_report(study, trials)


def values(table) -> dict[str, object]:
    return {row["fact"]: row["value"] for row in table.rows}


@pytest.mark.parametrize("position", [0, 1], ids=["val_loss", "failed"])
def test_every_trial_is_ranked_or_said_to_be_left_out(ranked, position):
    study, trials, rankings = ranked
    table = basis(Material(study, trials), rankings[position])
    found = values(table)
    endings = Counter(trial.user_attrs["resnas.ending"] for trial in trials)
    left_out = {name: found.get(name, 0) for name in ("pruned", "failed", "on other data", "without a finite value")}
    assert found["trials"] + sum(left_out.values()) == len(trials)
    assert left_out["pruned"] == endings["pruned"] == 3
    assert left_out["failed"] == (endings["failed"] if position == 0 else 0)
    assert "Pruned trials are left out" in table.caption
    for name, count in left_out.items():
        assert (f"{count} {name}" in table.html) is bool(count)


def test_the_numbers_of_what_a_ranking_rests_on_are_in_its_file(ranked):
    study, trials, rankings = ranked
    table = basis(Material(study, trials), rankings[0])
    held = [value for row in table.rows for value in row.values() if value is not None]
    written = {f"{value:.2g}" for value in held if isinstance(value, float)} | {str(value) for value in held}
    said = re.findall(r"\d[\d.]*\d|\d", re.sub(r"<[^>]+>", " ", table.html).replace("R²", ""))
    assert len(said) >= 14
    assert {number.rstrip(".") for number in said} <= written
    assert str(rankings[0].seed) in said
    assert [row["value"] for row in table.rows if row["fact"] == "check: agreement"] == [
        one.agreement for one in rankings[0].checks
    ]


def test_a_group_that_was_moved_together_reads_as_one(ranked):
    (*_, (first, _)) = ranked
    html = effects(first).html
    groups = first.moved_together()
    assert first.reliable
    assert max(len(one.correlated_with) for one in groups) >= 3
    assert html.count('class="verdict ') == len(groups)
    rows = [re.findall(r"<code>(.*?)</code>", row) for row in html.split("<tr>")[2:]]
    expected = [name for one in groups for name in (one.name, *one.correlated_with)]
    assert Counter(name for row in rows for name in row) == Counter(expected)
    position = 0
    for one in groups:
        size = 1 + len(one.correlated_with)
        assert {name for (name,) in rows[position : position + size]} == {one.name, *one.correlated_with}
        position += size


VERDICT = st.sampled_from([SUPPORTED, SUGGESTIVE, NOT_SEPARABLE])


@given(VERDICT, st.floats(-2, 2), st.floats(0, 2), st.floats(0, 2))
def test_the_effect_is_hollow_where_its_interval_holds_zero(verdict, value, below, above):
    low, high = value - below, value + above
    direction = NO_DIRECTION if low <= 0 <= high else "higher changes it"
    one = ranking(effect("depth", 0.5, verdict, effect=value, effect_low=low, effect_high=high, direction=direction))
    (trace,) = effect_figure(one).data
    assert trace.marker.color == VERDICTS[verdict].colour
    if verdict == NOT_SEPARABLE:
        assert trace.name == NOT_SEPARABLE
        assert "higher changes it" not in effects(one).html
    else:
        assert (trace.name == UNCLEAR[verdict]) is ("open" in trace.marker.symbol) is (direction == NO_DIRECTION)
        assert direction in effects(one).html


def test_the_table_says_where_a_property_applies_to_some_architectures_only():
    everywhere, some = effects(ranking(effect("depth", 0.5, n=50))).html, effects(ranking(effect("k", 0.5, n=12))).html
    assert "applies to" not in everywhere
    assert "applies to 12 of 50" in some


@pytest.mark.parametrize("count", [3, 4])
def test_being_among_three_leaders_is_said_where_there_are_more_than_three(count):
    html = effects(ranking(*(effect(f"k{n}", 1.0 - 0.1 * n, leader_share=0.87) for n in range(count)))).html
    assert html.count("0.87") == (count if count > 3 else 0)


def test_levels_are_drawn_of_what_has_a_verdict_once_for_each_group(ranked):
    (*_, (first, _)) = ranked
    drawn = drawn_effects(first)
    assert drawn[0].verdict == SUPPORTED
    groups = [frozenset((one.name, *one.correlated_with)) for one in drawn]
    assert len(set(groups)) == len(groups)
    assert all(one.verdict in (SUPPORTED, SUGGESTIVE) for one in drawn)
    traces = level_figure(first).data
    assert len(traces) == len(drawn)
    for one, trace in zip(drawn, traces, strict=True):
        assert list(trace.x) == [level.mean for level in one.levels]
        assert list(trace.y) == [level.name for level in one.levels]
        assert [m + b for m, b in zip(trace.x, trace.error_x.array, strict=True)] == pytest.approx(
            [level.high for level in one.levels]
        )
    assert len([name for name in (trace.name for trace in traces if trace.showlegend)]) == len(
        {one.verdict for one in drawn}
    )
    in_file = Counter(row["property"] for row in level_rows(first))
    assert in_file == {one.name: len(one.levels) for one in first.effects if one.levels}


def test_the_line_is_the_mean_over_architectures(ranked):
    assert overall_mean((LevelMean("a", 1.0, None, None, 1), LevelMean("b", 4.0, None, None, 3))) == 3.25
    study, trials, (first, _) = ranked
    loss = [one.mean("val_loss") for one in Material(study, trials).architectures]
    family = next(one for one in first.effects if one.name == "family")
    assert overall_mean(family.levels) == pytest.approx(sum(loss) / len(loss), abs=0.03)
    leader = drawn_effects(first)[0]
    assert level_figure(first).layout.shapes[0].x0 == pytest.approx(overall_mean(leader.levels))


def test_nothing_is_drawn_by_level_where_nothing_has_a_verdict(finished_study):
    noise = ranking(effect("depth", 0.2, NOT_SEPARABLE))
    material = Material(finished_study, load_trials(finished_study))
    assert not any(one.id.startswith("levels-") for one in exhibits(material, [noise]))
    assert any(one.id == "levels-dilution" for one in study_figures(material, [GROUPED]))


def test_a_parameter_belongs_to_the_property_that_takes_its_value():
    """Whatever is drawn, the property has the drawn value; what the topology collapses has no such parameter."""
    space = SearchSpace.load(SPACES / "every_option.yaml")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    matched = Counter()
    for _ in range(60):
        trial = study.ask()
        architecture = space.sample(trial)
        if architecture.family != trial.params["architecture.residual"]:
            continue
        properties = architecture.properties()
        for parameter, value in trial.params.items():
            if (name := property_of(parameter)) is not None and properties[name] is not None:
                assert properties[name] == OTHER_WORDS.get(value, value), (parameter, name)
                matched[name] += 1
    assert {"family", "depth", "learning_rate", "window_sources", "key_norm", "embedding_kept"} <= set(matched)
    assert property_of("architecture.residual.mine:Mine.rate") is None


def test_optunas_importances_stand_beside_ours_and_divide_one_hundred_percent(finished_study):
    material = Material(finished_study, load_trials(finished_study))
    table = beside_optuna(material, ranking(effect("family", 0.5, correlated_with=("reach",))))
    assert sum(row["ped_anova"] for row in table.rows) == pytest.approx(1)
    (row,) = [row for row in table.rows if row["parameter"] == "architecture.residual"]
    assert (row["property"], row["verdict"], row["importance"]) == ("family", SUPPORTED, 0.5)
    assert WHY_THEY_DIFFER in table.caption
    assert "ours: family + 1" in table.html


def failures_of(page: str) -> str:
    return page[page.index('<section id="failures"') : page.index('<section id="budget"')]


def test_what_makes_trials_fail_is_ranked_where_enough_failed_and_else_shown_as_shares(ranked, tmp_path):
    study, trials, (first, failing) = ranked
    assert failing.target == FAILED
    assert failing.reliable
    leader = failing.moved_together()[0]
    assert (leader.name, leader.verdict, leader.direction) == ("learning_rate", SUPPORTED, "higher raises failed")
    page = write_report(Material(study, trials), [first, failing]).read_text()
    shown = failures_of(page)
    assert 'id="figure-importance-failed"' in shown
    assert 'id="table-failed-shares"' not in shown
    properties = page[page.index('<section id="properties"') : page.index('<section id="search"')]
    assert "figure-importance-failed" not in properties
    assert "failed: held-out R²" in page[: page.index("<nav")]

    few = planted_study(tmp_path)
    started = planted_trials(few, FEWEST_TRIED - 1)
    assert not can_rank_failures(started)
    rankings = analyse(few, started)
    assert [one.target for one in rankings] == few.ranking.targets
    shown = failures_of(write_report(Material(few, started), rankings).read_text())
    assert 'id="table-failed-shares"' in shown
    assert "importance-failed" not in shown


def test_failures_are_ranked_from_five_failed_of_forty_architectures_on(ranked):
    _, trials, _ = ranked
    ending = {trial.user_attrs["resnas.key"]: trial.user_attrs["resnas.ending"] for trial in trials}
    failed = [key for key, end in ending.items() if end == "failed"]
    complete = [key for key, end in ending.items() if end == "complete"]

    def can(n_failed: int, n_complete: int) -> bool:
        keys = {*failed[:n_failed], *complete[:n_complete]}
        return can_rank_failures([trial for trial in trials if trial.user_attrs["resnas.key"] in keys])

    assert can(FEWEST_FAILED, FEWEST_TRIED - FEWEST_FAILED)
    assert not can(FEWEST_FAILED, FEWEST_TRIED - FEWEST_FAILED - 1)
    assert not can(FEWEST_FAILED - 1, FEWEST_TRIED)


def test_a_refused_ranking_of_failures_keeps_the_shares(ranked):
    study, trials, (first, failing) = ranked
    refused = type(failing)(**{**failing.__dict__, "reliable": False, "refusal": "no reliable ranking: too noisy"})
    page = write_report(Material(study, trials), [first, refused]).read_text()
    assert "failed: no reliable ranking: too noisy" in failures_of(page)
    assert 'id="table-failed-shares"' in failures_of(page)
    assert "too noisy" not in page[: page.index("<nav")]
