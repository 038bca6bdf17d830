"""From trials to rankings: which trials take part, what stands in the files, what Optuna says of the same trials."""

import csv
import json
from random import Random

import optuna
import pytest

from resnas.analysis import FEWEST_FAILED, analyse, effect_rows, with_failures
from resnas.architecture import PROPERTIES
from resnas.ranking import SUPPORTED
from resnas.results import METRICS
from resnas.search.importances import optuna_importances
from resnas.study import Study

SPACE = """
resnas: 1
architecture:
  depth: [2, 4]
  width: 16
  heads: 2
  residual: [fixed, full_depth_attention: {key_norm: [rms, none]}]
training:
  learning_rate: {low: 1e-3, high: 1e-1, log: true}
  mixing_lr_multiplier: [1, 10]
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
search: {seed: 3}
ranking: {targets: [dilution]}
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "study.yaml").write_text(STUDY)
    return Study.load(tmp_path / "study.yaml")


def made(study, count, failing=lambda architecture: False, ending="complete"):
    """Return trials of random architectures in which depth moves dilution and a high learning rate may fail."""
    trials = []
    for number in range(count):
        assignment = study.search_space.draw(Random(number))
        architecture = study.search_space.build(assignment)
        failed = failing(architecture)
        noise = Random(-number - 1).gauss(0, 0.3)
        found = {} if failed else {"dilution": architecture.depth / 2 + noise, "val_loss": 2.0 + noise}
        attributes = {
            "architecture": architecture.model_dump(mode="json"), "key": architecture.key, "seed": number,
            "label": architecture.label, "origin": "random", "ending": "failed" if failed else ending,
            "data_sha256": "data", "cause": "non-finite loss" if failed else "",
        }  # fmt: skip
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
            value=None if failed else found["val_loss"],
            params=assignment,
            distributions={name: _distribution(name, study) for name in assignment},
            user_attrs={f"resnas.{name}": value for name, value in attributes.items()} | found,
        )
        trial.number = number
        trials.append(trial)
    return trials


def _distribution(name, study):
    if name == "training.learning_rate":
        return optuna.distributions.FloatDistribution(1e-3, 1e-1, log=True)
    choices = {
        "architecture.depth": [2, 4],
        "architecture.residual": ["fixed", "full_depth_attention"],
        "architecture.residual.full_depth_attention.key_norm": ["rms", "none"],
        "training.mixing_lr_multiplier": [1, 10],
    }
    return optuna.distributions.CategoricalDistribution(choices[name])


def test_the_files_hold_every_property_with_its_meaning_and_its_levels(study):
    trials = made(study, 60)
    (ranking,) = analyse(study, trials)
    assert next(one for one in ranking.effects if one.name == "depth").verdict == SUPPORTED
    rows = list(csv.DictReader((study.results_folder / "ranking.csv").read_text().splitlines()))
    assert {row["name"] for row in rows} == set(PROPERTIES)
    depth = next(row for row in rows if row["name"] == "depth")
    assert (depth["unit"], depth["option"]) == ("layers", "architecture.depth")
    levels = list(csv.DictReader((study.results_folder / "ranking_levels.csv").read_text().splitlines()))
    means = {row["level"]: float(row["mean"]) for row in levels if row["property"] == "depth"}
    assert means["4"] - means["2"] == pytest.approx(float(depth["effect"]))
    (kept,) = json.loads((study.results_folder / "ranking.json").read_text())
    assert kept["sentence"] == ranking.sentence()
    assert effect_rows([ranking])[0]["meaning"]


def test_pruned_and_failed_trials_are_left_out_and_a_target_of_ones_own_keeps_no_files(study):
    complete = made(study, 50)
    pruned = made(study, 70, ending="pruned")[50:]
    (ranking,) = analyse(study, [*complete, *pruned], ["val_loss"])
    assert ranking.n_trials == 50
    assert not (study.results_folder / "ranking.csv").exists()


def test_what_makes_trials_fail_is_a_ranking_of_its_own(study):
    trials = made(study, 80, failing=lambda one: one.training.learning_rate > 0.02)
    (ranking,) = analyse(study, trials, ["failed"])
    rate = next(one for one in ranking.effects if one.name == "learning_rate")
    assert (rate.verdict, rate.direction) == (SUPPORTED, "higher raises failed")
    assert rate.effect == pytest.approx(1, abs=0.15)
    assert ranking.n_trials == 80


def test_too_few_failures_are_not_ranked(study):
    trials = made(study, 60)
    rows = with_failures(
        [{"key": str(n), "ending": "failed" if n < FEWEST_FAILED - 1 else "complete"} for n in range(60)]
    )
    assert all(row["failed"] is None for row in rows)
    (ranking,) = analyse(study, trials, ["failed"])
    assert not ranking.reliable


def test_parameters_that_optuna_finds_equally_important_keep_an_order(study):
    """Files that are kept must not differ from run to run; Optuna gives parameters that do not vary 0."""
    names = list("hgfedcba")
    trials = made(study, 20)
    for trial in trials:
        trial.distributions |= dict.fromkeys(names, optuna.distributions.IntDistribution(1, 1))
        trial.params |= dict.fromkeys(names, 1)
    found = [one.parameter for one in optuna_importances(trials, "dilution", seed=0)]
    assert found[-8:] == sorted(names)


def test_optunas_importances_are_those_of_optuna(study):
    trials = made(study, 60)
    found = {one.parameter: one for one in optuna_importances(trials, "dilution", seed=0)}
    assert found["architecture.depth"].fanova == max(one.fanova or 0 for one in found.values())
    assert sum(one.fanova or 0 for one in found.values()) == pytest.approx(1)
    plain = optuna.create_study()
    plain.add_trials(
        optuna.trial.create_trial(params=t.params, distributions=t.distributions, value=t.user_attrs["dilution"])
        for t in trials
    )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    expected = optuna.importance.get_param_importances(plain, evaluator=evaluator)
    assert {name: one.ped_anova for name, one in found.items()} == pytest.approx(expected)
    assert optuna_importances(trials[:3], "dilution", seed=0) == []
    assert optuna_importances(trials, "late_share", seed=0) == []
    assert "late_share" in METRICS
