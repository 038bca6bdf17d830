"""From trials to verdicts with planted truths: real ranking, plan, runner and statistics; only the training is a
formula."""

import math
import re
from random import Random

import optuna
import pandas
import pytest

from resnas.architecture import Architecture
from resnas.comparison import comparable
from resnas.confirm import carry_out, make_plan, remarks, sentence
from resnas.executor.events import Ended, Limits
from resnas.ranking import SUPPORTED, rank
from resnas.results import property_names, table
from resnas.runs import Runner
from resnas.study import Study
from resnas.trial import TrialResult

SPACE = """
resnas: 1
architecture:
  depth: [2, 4]
  width: 16
  heads: 2
  residual: [fixed, full_depth_attention: {key_norm: [rms, none]}]
training:
  learning_rate: {low: 1e-3, high: 1e-2, log: true}
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
budget: {steps: 4, validations: 1}
search: {seed: 3}
"""
BEST_RATE = {"fixed": 1e-3, "full_depth_attention": 6e-3}
RANKED_EFFECT = -0.4


def metrics(architecture, seed, effect, noise=0.02):
    """Return planted metrics: attention moves dilution by `effect`, and its loss is lowest at another rate."""
    random = Random(f"{seed} {architecture.key}")
    attention = architecture.family == "full_depth_attention"
    rate = math.log10(architecture.training.learning_rate / BEST_RATE[architecture.family])
    loss = 2.0 - 0.2 * attention + rate**2 + random.gauss(0, noise / 10)
    dilution = 1.0 + effect * attention + random.gauss(0, noise)
    return {"val_loss": loss, "dilution": dilution, "effective_depth": 0.2, "test_loss": loss}


class Planted:
    """An executor whose trials end at once, with what the formula says, or fail where `fails` says so."""

    slots = 2

    def __init__(self, effect, fails=lambda architecture, seed: False, noise=0.02):
        self._effect, self._fails, self._noise = effect, fails, noise
        self._ended, self.specs = [], []

    def submit(self, number, spec, limits):
        self.specs.append(spec)
        architecture = Architecture(**spec.architecture)
        if self._fails(architecture, spec.seed):
            result = TrialResult.failure("non-finite loss", "planted")
        else:
            found = metrics(architecture, spec.seed, self._effect, self._noise)
            result = TrialResult("complete", metrics=found, data_sha256="data")
        self._ended.append(Ended(number, result))
        return "here"

    def events(self, timeout_s):
        events, self._ended = self._ended, []
        return events

    def stop(self):
        self._ended = []

    def abort(self):
        pass


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    (folder / "space.yaml").write_text(SPACE)
    (folder / "study.yaml").write_text(STUDY)
    return Study.load(folder / "study.yaml")


@pytest.fixture(scope="module")
def trials(study):
    """Return sixty trials of random architectures, in which attention lowers dilution."""
    made = []
    for number in range(60):
        architecture = study.search_space.build(study.search_space.draw(Random(number)))
        attributes = {
            "architecture": architecture.model_dump(mode="json"), "key": architecture.key, "seed": number,
            "label": architecture.label, "origin": "random" if number % 3 == 0 else "tpe", "ending": "complete",
            "data_sha256": "data",
        }  # fmt: skip
        user_attrs = {f"resnas.{name}": value for name, value in attributes.items()}
        found = metrics(architecture, number, RANKED_EFFECT)
        trial = optuna.trial.create_trial(value=found["val_loss"], user_attrs=user_attrs | found)
        trial.number = number
        made.append(trial)
    return made


@pytest.fixture(scope="module")
def ranking(trials):
    frame = pandas.DataFrame(comparable(table(trials)))
    names = [name for name in property_names(trials) if name in frame]
    found = rank(frame, names, "dilution", seed=1, bootstraps=15, shuffles=40)
    assert next(one for one in found.effects if one.name == "family").verdict == SUPPORTED
    return found


@pytest.fixture
def confirm(study, trials, ranking, tmp_path):
    """Return a function that carries out a plan with a planted truth."""

    def run(effect=RANKED_EFFECT, fails=lambda architecture, seed: False, seeds=5, best=False, noise=0.02, rates=(1,)):
        executor = Planted(effect, fails, noise)
        plan = make_plan(study, trials, [ranking], [], 1, None, best)
        runner = Runner(executor, tmp_path, Limits(), "data")
        findings = carry_out(study, plan, seeds, rates, runner, tmp_path)
        return findings, executor

    return run


def test_what_the_ranking_found_is_tested_as_one_claim(confirm):
    findings, _ = confirm()
    (found,) = findings.outcomes
    claim = found.pair.claim
    assert (claim.subject, claim.before, claim.after) == ("family", "fixed", "full_depth_attention")
    assert "token_dependent" in claim.together_with
    assert claim.effect == pytest.approx(RANKED_EFFECT, abs=0.1)
    assert found.paired["dilution"].low <= RANKED_EFFECT <= found.paired["dilution"].high
    words = r"dilution: full_depth_attention instead of fixed lowers it by 0\.[34]\d* \(90 % interval 0.* to 0.*; d = "
    assert re.fullmatch(words + r"\d.*, 5 seeds\): confirmed\.", sentence(found))


@pytest.mark.parametrize(
    ("effect", "noise", "text"),
    [
        (-0.4, 0.02, "confirmed"),
        (0.4, 0.02, "refuted: the other way round"),
        (0.0, 0.02, "refuted: negligible"),
        (-0.2, 1.0, "undecided: "),
    ],
)
def test_planted_truths_come_back(confirm, effect, noise, text):
    (found,) = confirm(effect, noise=noise)[0].outcomes
    assert found.verdict.text.startswith(text)


def test_each_arm_gets_the_rate_at_which_it_trains_best_beyond_the_edge_of_the_grid(confirm):
    findings, executor = confirm(rates=(0.5, 1, 2))
    (found,) = findings.outcomes
    base_rate = found.pair.base.training.learning_rate
    for arm in found.arms:
        tried = [run.spec.architecture["training"]["learning_rate"] for run in arm.runs]
        best = min(tried, key=lambda rate: abs(math.log(rate / BEST_RATE[arm.architecture.family])))
        assert arm.rate == pytest.approx(best)
    rates = [run.spec.architecture["training"]["learning_rate"] for run in found.arms[0].runs]
    assert [rate / base_rate for rate in rates] == pytest.approx([0.125, 0.25, 0.5, 1, 2])
    assert found.arms[0].remark.startswith("grid of learning rates extended twice")
    assert (len(found.arms[1].runs), found.arms[1].remark) == (3, "")
    tuning_seeds = {run.spec.seed for arm in found.arms for run in arm.runs}
    assert len(tuning_seeds) == 1
    compared = {spec.seed for spec in executor.specs} - tuning_seeds
    assert len(compared) == 5


def test_a_grid_is_extended_at_most_twice_and_one_that_never_trains_is_said(confirm):
    def fails(architecture, seed):
        return architecture.family == "fixed"

    (found,) = confirm(fails=fails, rates=(0.5, 1))[0].outcomes
    assert len(found.arms[0].runs) == 4
    assert found.arms[0].remark == "no learning rate of the grid trains it"
    assert found.verdict.text == "fails to train: 5 of 5 runs with fixed failed"
    assert "5 of 5 runs of fixed failed; their pairs are left out" in remarks(found)


def test_one_failed_run_of_five_leaves_its_pair_out(confirm):
    seen = []

    def fails(architecture, seed):
        seen.append(seed)
        return architecture.family == "fixed" and seed == seen[0]

    (found,) = confirm(fails=fails)[0].outcomes
    assert (found.failed, found.paired["dilution"].n, found.verdict.name) == ((1, 0), 4, "confirmed")


def test_further_seeds_are_further_looks_at_a_stricter_level(confirm):
    looks = []
    for seeds, new in ((5, 10), (5, 0), (8, 6), (5, 0)):
        findings, executor = confirm(seeds=seeds)
        assert len(executor.specs) == new
        looks.append((findings.outcomes[0].look, findings.outcomes[0].error))
    assert looks == [(1, 0.05), (1, 0.05), (2, 0.1 / 6), (1, 0.05)]


def test_the_best_is_judged_on_the_test_split_against_fixed_and_random(confirm, study, trials):
    findings, executor = confirm(best=True, rates=(0.5, 1, 2))
    best = [one for one in findings.outcomes if one.pair.kind == "best"]
    assert len(best) == 2
    for one in best:
        assert one.pair.target == "test_loss"
        assert one.together == len(best)
        test_runs = [run["purpose"] for run in findings.run_rows if one.pair.name in run["arm"]]
        assert test_runs.count("test") == 10
    assert sum(spec.test for spec in executor.specs) == 5 * len(
        {one.key for o in best for one in (o.pair.base, o.pair.changed)}
    )
    lowest = min(trials, key=lambda trial: trial.value)
    assert {one.pair.changed.key for one in best} == {lowest.user_attrs["resnas.key"]}
    against_fixed, against_random = best
    assert (against_fixed.pair.base.family, against_fixed.verdict.name) == ("fixed", "better")
    assert against_fixed.paired["test_loss"].difference == pytest.approx(-0.2, abs=0.05)
    lowest_random = min(
        (trial for trial in trials if trial.user_attrs["resnas.origin"] == "random"), key=lambda trial: trial.value
    )
    assert against_random.pair.base.key == lowest_random.user_attrs["resnas.key"]
