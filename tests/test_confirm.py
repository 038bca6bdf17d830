"""Confirming with a real, tiny study and the real command line: pairs, files, reuse, looks, interruptions."""

import csv
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from resnas.cli.confirming import Request, run_confirm
from resnas.confirm.looks import number_looks
from resnas.confirm.paired import error_of_look
from resnas.errors import InputError, ResnasError
from resnas.results import Recorded
from resnas.search import load_trials
from resnas.study import Study

ROOT = Path(__file__).parent.parent
CLAIM = ("--claim", "family=fixed..full_depth_attention")
QUICK = (*CLAIM, "--rates", "1", "--no-best")


def command(study: Path, *options: str) -> list[str]:
    return [sys.executable, str(ROOT / "cli.py"), "confirm", str(study), *options]


def confirm(study: Path, *options: str) -> subprocess.CompletedProcess:
    done = subprocess.run(command(study, *options), capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return done


def objects(study: Path) -> list[dict]:
    return json.loads((study.with_suffix("") / "confirm.json").read_text())


def run_rows(study: Path) -> list[dict]:
    with (study.with_suffix("") / "confirm_runs.csv").open() as file:
        return list(csv.DictReader(file))


def kept(study: Path) -> dict[str, tuple[float, dict]]:
    """Return when each result was written, and what is in it."""
    paths = (study.with_suffix("") / "confirmations").glob("*/result.json")
    return {path.parent.name: (path.stat().st_mtime_ns, json.loads(path.read_text())) for path in paths}


@pytest.fixture
def study(finished_study, tmp_path):
    """Return the file of a copy of a finished study."""
    for path in (finished_study.path, finished_study.path.with_name("space.yaml")):
        shutil.copy(path, tmp_path)
    shutil.copytree(finished_study.results_folder, tmp_path / finished_study.name)
    return tmp_path / finished_study.path.name


def test_pairs_differ_in_one_option_and_share_seeds_that_the_search_never_used(study):
    done = confirm(study, *QUICK, "--seeds", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["metric"] for row in rows] == ["dilution", "val_loss", "effective_depth"]
    (found,) = objects(study)
    assert (found["property"], found["from"], found["to"]) == ("family", "fixed", "full_depth_attention")
    assert {"token_dependent", "mixing_parameters"} <= set(found["changes_as_well"])
    results = [one for _, one in kept(study).values()]
    assert len(results) == 4
    specs = [one["run"] for one in results]
    for spec in specs:
        assert spec["architecture"] | {"residual": ""} == specs[0]["architecture"] | {"residual": ""}
    seeds = {json.dumps(spec["architecture"]["residual"]): set() for spec in specs}
    for spec in specs:
        seeds[json.dumps(spec["architecture"]["residual"])].add((spec["seed"], spec["data_seed"]))
    (ours, theirs) = seeds.values()
    assert len(seeds) == 2
    assert ours == theirs
    loaded = Study.load(study)
    assert all(spec["budget"] == loaded.budget.model_dump(mode="json") for spec in specs)
    assert not any(spec["test"] for spec in specs)
    searched = [Recorded.of(trial) for trial in load_trials(loaded)]
    assert not {seed for seed, _ in ours} & {trial.seed for trial in searched}
    assert not {data_seed for _, data_seed in ours} & {trial.data_seed for trial in searched}


@pytest.mark.slow
def test_differences_are_those_of_the_runs_and_more_seeds_reuse_them_as_a_further_look(study):
    assert confirm(study, *QUICK, "--seeds", "2").returncode == 0
    first, before = objects(study), kept(study)
    assert confirm(study, *QUICK, "--seeds", "2").returncode == 0
    assert (objects(study), kept(study)) == (first, before)
    assert first[0]["look"] == 1
    done = confirm(study, *QUICK, "--seeds", "3")
    assert "look number 2" in done.stdout
    (found,), after = objects(study), kept(study)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
    assert (found["look"], found["interval_error"]) == (2, error_of_look(2, 1))
    arms: dict[str, dict] = {"from": {}, "to": {}}
    for row in run_rows(study):
        arms[row["arm"].split()[0]][row["seed"]] = row
    for metric, numbers in found["metrics"].items():
        ours, theirs = ([float(arm[seed][metric]) for seed in arms["from"]] for arm in arms.values())
        test = ttest_rel(theirs, ours)
        interval = test.confidence_interval(1 - error_of_look(2, 1))
        assert numbers["n"] == 3
        assert numbers["difference"] == pytest.approx(statistics.fmean(theirs) - statistics.fmean(ours))
        assert (numbers["low"], numbers["high"], numbers["p"]) == pytest.approx((*interval, test.pvalue))
    with (study.with_suffix("") / "confirm.csv").open() as file:
        table = {row["metric"]: row for row in csv.DictReader(file)}
    assert float(table["dilution"]["low"]) == found["metrics"]["dilution"]["low"]
    assert table["dilution"]["verdict"] == found["verdict_text"]
    assert found["sentence"] in done.stdout


@pytest.mark.slow
def test_claims_about_several_metrics_share_their_runs_and_are_judged_together(study):
    options = (*QUICK, "--claim", "family=fixed..scalar_learned", "--target", "val_loss", "--target", "dilution")
    assert confirm(study, *options, "--seeds", "2").returncode == 0
    found = objects(study)
    assert len(kept(study)) == 6  # three families, two seeds
    assert [(one["target"], one["to"]) for one in found] == [
        (target, family) for target in ("val_loss", "dilution") for family in ("full_depth_attention", "scalar_learned")
    ]
    assert {one["judged_together"] for one in found} == {4}
    for first, second in zip(found[:2], found[2:], strict=True):
        assert first["metrics"]["dilution"]["difference"] == second["metrics"]["dilution"]["difference"]
    with (study.with_suffix("") / "confirm.csv").open() as file:
        deciding = [row for row in csv.DictReader(file) if row["verdict"]]
    assert [(row["target"], row["metric"]) for row in deciding] == [(one["target"],) * 2 for one in found]


@pytest.mark.slow
def test_rates_are_chosen_on_a_seed_of_their_own_and_the_best_is_judged_on_the_test_split(study):
    done = confirm(study, "--seeds", "2", "--rates", "0.5,1", "--set", "objectives=dilution")
    assert done.returncode == 0, done.stderr
    assert "The ranking claims nothing to test" in done.stdout
    assert "has not trained" in done.stdout  # no random draws in a grid
    (found,) = objects(study)
    assert found["kind"] == "best"
    assert found["target"] == "test_loss"
    assert {"test_loss", "test_accuracy"} <= set(found["metrics"])
    rows = run_rows(study)
    tuning = [row for row in rows if row["purpose"] == "tuning"]
    test = [row for row in rows if row["purpose"] == "test"]
    assert not {row["seed"] for row in tuning} & {row["seed"] for row in test}
    assert all(row["test_loss"] for row in test)
    assert not any(row["test_loss"] for row in tuning)
    for role in ("from", "to"):
        tried = {float(row["learning_rate"]): float(row["val_loss"]) for row in tuning if row["arm"].startswith(role)}
        chosen = {float(row["learning_rate"]) for row in test if row["arm"].startswith(role)}
        assert chosen == {min(tried, key=tried.__getitem__)} == {found["learning_rates"][role]}
        assert len(tried) in (2, 3, 4)


@pytest.mark.slow
def test_matched_arms_have_equally_many_parameters(study):
    assert confirm(study, *QUICK, "--seeds", "2", "--match", "parameters").returncode == 0
    (found,) = objects(study)
    equal = found["matched"]
    assert equal["changed"] == pytest.approx(equal["base"], rel=0.01)
    counts = {row["arm"].split()[0]: int(float(row["parameters"])) for row in run_rows(study)}
    assert counts == {"from": equal["base"], "to": equal["changed"]}


@pytest.mark.slow
def test_runs_that_diverge_are_counted_and_are_the_finding(study):
    options = ("--set", "budget.steps=40", "--rates", "1", "--no-best", "--seeds", "2")
    done = confirm(study, "--claim", "learning_rate=1e-3..1e30", *options)
    assert done.returncode == 0, done.stderr
    (found,) = objects(study)
    assert found["verdict"] == "fails to train", done.stdout
    assert found["failed"] == {"from": 0, "to": 2}
    assert found["metrics"]["val_loss"]["n"] == 0
    assert "2 of 2 runs with" in found["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_after_ctrl_c_or_a_kill_the_same_command_goes_on_and_runs_nothing_twice(study, kind):
    options = (*QUICK, "--seeds", "2", "--set", "search.workers=1", "--set", "budget.steps=150")
    process = subprocess.Popen(
        command(study, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not kept(study) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(kind)
    started = time.monotonic()
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - started < 10
    before = kept(study)
    assert 1 <= len(before) < 4, output
    assert not (study.with_suffix("") / "confirm.json").exists()
    if kind == signal.SIGINT:
        assert process.returncode == 130, output
        assert re.search(r"go on with: python cli.py confirm \S+small.yaml --claim", output)
        assert "Traceback" not in output
    done = confirm(study, *options)
    assert done.returncode == 0, done.stderr
    after = kept(study)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    assert objects(study)[0]["look"] == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"targets": ["dilutoin"]}, "^--target: .*did you mean 'dilution'"),
        ({"claims": ["famly"]}, "^--claim: .*did you mean 'family'"),
        ({"claims": ["depth"]}, "^--claim depth: has one value in this study"),
        ({"claims": ["family=fixed..burnt"]}, "^--claim family=.*no change of one option"),
        ({"claims": ["mlp_ratio=1..2"], "match": "flops"}, "^--claim mlp_ratio.*mlp_ratio is itself"),
        ({"rates": "1,x"}, "^--rates: '1,x' .*0.5,1,2"),
        ({"rates": "1,1"}, "^--rates: '1,1' .*different"),
        ({"rates": "0,1"}, "^--rates: '0,1' .*above 0"),
    ],
)
def test_bad_input_is_one_sentence_before_any_run(study, changes, words):
    request = replace(Request([], 3, ["family"], 2, None, "1", False), **changes)
    with pytest.raises(InputError, match=words) as caught:
        run_confirm(study, request, [], "table")
    assert "\n" not in str(caught.value)
    assert not kept(study)


def test_other_data_are_refused(study):
    done = confirm(study, *QUICK, "--set", "task={khop: {length: 24}}")
    assert done.returncode == 2
    assert "was run on other data" in done.stderr
    assert not kept(study)


def test_a_second_confirm_is_refused(study):
    from resnas.lock import locked

    folder = study.with_suffix("") / "confirmations"
    folder.mkdir()
    with locked(folder / "lock", "another"):
        done = confirm(study, *QUICK)
    assert done.returncode == 1
    assert "another confirm is running" in done.stderr


def test_looks_count_only_where_other_runs_are_seen(tmp_path):
    path = tmp_path / "looks.json"
    assert number_looks(path, {"a": ["1", "2"], "b": ["3"]}) == {"a": 1, "b": 1}
    assert number_looks(path, {"a": ["2", "1"]}) == {"a": 1}
    assert number_looks(path, {"a": ["1", "2", "4"]}) == {"a": 2}
    assert number_looks(path, {"a": ["1", "2"], "b": ["4"]}) == {"a": 1, "b": 2}
    path.write_text("[")
    with pytest.raises(ResnasError, match="record of looks"):
        number_looks(path, {"a": ["1"]})
