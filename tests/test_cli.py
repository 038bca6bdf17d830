"""The command line as a person uses it: exit codes, one clear sentence for bad input, tables for programs."""

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from resnas.cli.app import app
from resnas.cli.reporting import print_numbers
from resnas.cli.tables import clock, shown
from resnas.errors import InputError

ROOT = Path(__file__).parent.parent
COMMANDS = [command.callback.__name__ for command in app.registered_commands]


def resnas(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_the_commands_are_those_of_the_readme():
    assert COMMANDS == [
        "search",
        "check",
        "status",
        "analyze",
        "confirm",
        "report",
        "dashboard",
        "clean",
        "train",
        "export",
        "bench",
        "schema",
    ]
    readme = (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"python cli.py {command}" in readme


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command):
    done = resnas(command, "--help")
    assert done.returncode == 0
    assert "Examples" in done.stdout
    assert f"python cli.py {command}" in done.stdout


@pytest.fixture
def files(tmp_path):
    (tmp_path / "space.yaml").write_text("resnas: 1\narchitecture:\n  depth: [2, 4]\n  residual: [fixed]\n")
    (tmp_path / "study.yaml").write_text("resnas: 1\nspace: space.yaml\ntask: text\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "nowhere.yaml"], ["nowhere.yaml", "no such file"]),
        (
            ["check", "study.yaml", "--set", "search.n_trails=3"],
            ["--set", "search.n_trails", "did you mean 'n_trials'"],
        ),
        (["search", "study.yaml", "--set", "search.n_trials=0"], ["search.n_trials", "at least 1", "not 0"]),
        (["search", "space.yaml"], ["space.yaml:2", "search space, not a study"]),
        (["status", "study.yaml"], ["no results yet", "python cli.py search study.yaml"]),
        (["analyze", "study.yaml", "--target", "dilutoin"], ["--target", "dilutoin", "did you mean 'dilution'"]),
        (["report", "study.yaml"], ["no results yet"]),
        (["dashboard", "study.yaml"], ["no results yet"]),
        (["clean", "study.yaml"], ["no results yet"]),
        (["search", "study.yaml", "--set", "task={text: {corpus: missing-*.txt}}"], ["missing-*.txt"]),
        (["search", "study.yaml", "--set", "storage=postgresql://u:secret@127.0.0.1:1/x"], ["storage", "cannot use"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(files, arguments, words):
    done = resnas(*arguments, cwd=files)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("resnas: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr + done.stdout
    for word in words:
        assert word in done.stderr


def test_debug_shows_the_traceback_wherever_it_stands(files):
    for arguments in (["--debug", "check", "nowhere.yaml"], ["check", "nowhere.yaml", "--debug"]):
        done = resnas(*arguments, cwd=files)
        assert done.returncode == 2
        assert "Traceback" in done.stderr


def test_unknown_options_and_commands_are_wrong_input(files):
    assert resnas("serach", cwd=files).returncode == 2
    assert resnas("check", "--formt", "csv", cwd=files).returncode == 2


def test_check_prints_the_same_rows_as_json_and_csv(files):
    rows = json.loads(resnas("check", "space.yaml", "--examples", "4", "--format", "json", cwd=files).stdout)
    assert len(rows) == 4
    assert {row["depth"] for row in rows} <= {2, 4}
    printed = resnas("check", "space.yaml", "--examples", "4", "--format", "csv", cwd=files).stdout
    assert [row["parameters"] for row in csv.DictReader(io.StringIO(printed))] == [
        str(row["parameters"]) for row in rows
    ]
    table = resnas("check", "study.yaml", cwd=files).stdout
    assert "Expected time" in table
    assert "2 assignments" in table


@pytest.mark.parametrize("kind", ["space", "study"])
def test_schema_is_json(kind):
    schema = json.loads(resnas("schema", kind).stdout)
    assert schema["type"] == "object"
    assert "resnas" in schema["properties"]


def test_status_analyze_report_of_a_finished_study(finished_study):
    done = resnas("status", finished_study.path)
    assert re.search(r"(\d+) of \1 trials", done.stdout), done.stderr
    assert "Best architectures" in done.stdout
    rows = json.loads(resnas("status", finished_study.path, "--format", "json").stdout)
    assert len(rows) == finished_study.search.n_trials
    analyzed = resnas("analyze", finished_study.path, "--target", "dilution")
    assert analyzed.returncode == 0, analyzed.stderr
    assert "no reliable ranking" in analyzed.stdout
    effects = json.loads(resnas("analyze", finished_study.path, "--format", "json").stdout)
    assert {effect["target"] for effect in effects} == set(finished_study.ranking.targets)
    reported = resnas("report", finished_study.path)
    assert reported.returncode == 0, reported.stderr
    assert (finished_study.results_folder / "report.html").stat().st_size > 1e6
    assert "without them" not in reported.stderr


def test_a_report_says_which_trials_have_lost_their_files(finished_study, tmp_path):
    copied = tmp_path / "kept"
    shutil.copytree(finished_study.path.parent, copied)
    for number in (0, 2):
        shutil.rmtree(copied / "small" / "trials" / f"{number:04}")
    reported = resnas("report", copied / "small.yaml")
    assert reported.returncode == 0, reported.stderr
    assert re.search(r"2 of 4 complete trials have no readable result\.json in .*without them", reported.stderr)


def test_report_prints_the_numbers_of_its_files(finished_study, capsys):
    def printed(format, table=None):
        print_numbers(finished_study.path, [], format, table)
        return capsys.readouterr().out

    every = json.loads(printed("json"))
    assert {"architectures", "newest-share", "budget-correlation", "association", "protocol"} <= every.keys()
    assert json.loads(printed("json", "families")) == every["families"]
    assert [row["complete"] for row in every["families"]] == [1, 1, 1, 1]
    assert resnas("report", finished_study.path).returncode == 0
    assert printed("csv", "families").splitlines() == (
        (finished_study.results_folder / "report" / "families.csv").read_text().splitlines()
    )
    assert "full depth attention" in printed("table", "families").replace("_", " ")
    with pytest.raises(InputError, match=r"--format csv prints one table.*families"):
        printed("csv")
    done = resnas("report", finished_study.path, "--table", "famlies")
    assert done.returncode == 2
    assert re.search("--table: unknown table or figure 'famlies'.*did you mean 'families'", done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1


def test_dashboard_serves_until_it_is_interrupted(finished_study):
    command = [sys.executable, str(ROOT / "cli.py"), "dashboard", str(finished_study.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address is not None, line + process.stdout.read()
        with urllib.request.urlopen(f"{address[0]}/api/studies") as answer:
            assert finished_study.name in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0


def test_numbers_are_written_for_people():
    assert [shown(value) for value in (0.123456, -2.0, 1234567, None, True, "x", float("nan"))] == [
        "0.1235", "−2", "1,234,567", "–", "yes", "x", "–",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (5, 65, 3665)] == ["0:05", "1:05", "1:01:05"]


def test_a_new_study_is_a_copy_under_another_name(files):
    (files / "other.yaml").write_text("taken")
    taken = resnas("search", files / "study.yaml", "--new-study", "other")
    assert taken.returncode == 2
    assert "other.yaml exists already" in taken.stderr
    small = ("budget.steps=2", "budget.validations=1", "budget.validation_batches=1", "search.n_trials=1")
    options = [part for one in (*small, "task={text: {context: 16}}") for part in ("--set", one)]
    done = resnas("search", files / "study.yaml", "--new-study", "mine", "--timeout", "5m", *options)
    assert done.returncode == 0, done.stderr
    assert (files / "mine.yaml").read_text() == (files / "study.yaml").read_text()
    assert (files / "mine" / "report.html").exists()
    assert not (files / "study").exists()
    assert "1 of 1 trials" in resnas("status", files / "mine.yaml", *options).stdout


def test_durations():
    from resnas.cli.durations import seconds
    from resnas.errors import InputError

    texts = ("2h", "1h30m", "90m", "45s", "0.5d", "12")
    assert [seconds(text, "--timeout") for text in texts] == [7200, 5400, 5400, 45, 43200, 12]
    for wrong in ("", "soon", "2 hours", "-1h", "0s", "1h 5"):
        with pytest.raises(InputError, match="--timeout"):
            seconds(wrong, "--timeout")
