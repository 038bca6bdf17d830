"""The results that lie in the repository: as large as they must be, whole, and told by the README as they are."""

import json
import re
from pathlib import Path

import pandas
import pytest

from resnas.ranking.result import number

ROOT = Path(__file__).parent.parent
README = " ".join((ROOT / "README.md").read_text().split())
TEXT, KHOP = "four_families", "four_families_khop"
SIZES = {TEXT: (120, 40, 3), KHOP: (60, 30, 2)}
"""Completed trials, architectures, and seeds of each, at least."""
COLUMNS = ["val_loss", "dilution", "effective_depth", "late_share"]


def folder(study: str) -> Path:
    return ROOT / "studies" / study


def architectures(study: str) -> pandas.DataFrame:
    """Return the mean over seeds of each architecture that was drawn at random, or is the baseline."""
    trials = pandas.read_csv(folder(study) / "results.csv")
    trials = trials[(trials["ending"] == "complete") & (trials["origin"].groupby(trials["key"]).transform(is_random))]
    return trials.groupby(["family", "key"])[COLUMNS].mean().reset_index()


def is_random(origins: pandas.Series) -> bool:
    return not (origins == "tpe").any()


def outcomes() -> list[dict]:
    return json.loads((folder(TEXT) / "confirm.json").read_text())


@pytest.mark.parametrize("study", SIZES)
def test_a_reference_study_is_as_large_as_it_must_be(study):
    trials = pandas.read_csv(folder(study) / "results.csv")
    complete = trials[trials["ending"] == "complete"]
    fewest_trials, fewest_architectures, fewest_seeds = SIZES[study]
    assert len(complete) >= fewest_trials
    assert complete["key"].nunique() >= fewest_architectures
    assert complete.groupby("key")["seed"].nunique().min() >= fewest_seeds
    assert complete["data_sha256"].nunique() == 1


@pytest.mark.parametrize("study", SIZES)
def test_a_report_is_small_and_names_files_that_are_there(study):
    page = folder(study) / "report.html"
    assert page.stat().st_size < 8e6
    named = set(re.findall(r'href="(report/[^"]+\.csv)"', page.read_text()))
    assert len(named) > 20
    assert named == {str(path.relative_to(folder(study))) for path in (folder(study) / "report").iterdir()}


@pytest.mark.parametrize("study", SIZES)
def test_the_readme_compares_families_as_the_results_do(study):
    for family, found in architectures(study).groupby("family"):
        medians = found[COLUMNS].median()
        cells = [f"`{family}`", str(len(found)), f"{medians['val_loss']:.3f}", f"{found['val_loss'].min():.3f}"]
        cells += [number(medians[name]) for name in COLUMNS[1:]]
        assert f"| {' | '.join(cells)} |" in README


def test_where_a_higher_learning_rate_goes_with_more_dilution_is_told():
    trials = pandas.read_csv(folder(TEXT) / "results.csv")
    rates = trials.groupby("key")["learning_rate"].first()
    drawn = architectures(TEXT)
    found = {
        family: of["dilution"].corr(of["key"].map(rates), method="spearman") for family, of in drawn.groupby("family")
    }
    full = found.pop("full_depth_attention")
    others = f"{number(min(found.values()))} to {number(max(found.values()))} in the other families"
    assert (
        f"(ρ {number(full)} over {(drawn['family'] == 'full_depth_attention').sum()} random draws; {others})" in README
    )


def test_at_least_three_claims_were_put_to_the_test_with_enough_seeds():
    claims = [one for one in outcomes() if one["kind"] == "claim"]
    assert len(claims) >= 3
    assert all(one["seeds"] >= 3 for one in claims)
    assert {one["kind"] for one in outcomes()} == {"claim", "best"}


def test_the_readme_tells_every_outcome():
    for one in outcomes():
        found = one["metrics"][one["target"]]
        size = f"{number(found['difference'], 3)} [{number(found['low'], 3)}, {number(found['high'], 3)}]"
        assert f"| {size} | {one['verdict_text']} |" in README, one["claim"]
        assert f"{one['seeds']} fresh seeds" in README


def test_the_readme_begins_with_what_the_best_architecture_gains():
    best = next(one for one in outcomes() if one["kind"] == "best")
    gain = {name: number(-best["metrics"][best["target"]][name], 3) for name in ("difference", "low", "high")}
    said = f"{gain['difference']} nats lower than the best `fixed` one (90 % interval {gain['high']} to {gain['low']})"
    assert f"with {best['seeds']} fresh seeds" in README
    assert said in README


@pytest.mark.parametrize("study", SIZES)
def test_the_readme_quotes_the_rankings(study):
    for one in json.loads((folder(study) / "ranking.json").read_text()):
        r2 = f"{number(one['r2'])} ({number(one['r2_low'])} to {number(one['r2_high'])})"
        assert f"`{one['target']}`: R² = {r2}" in README, one["target"]
