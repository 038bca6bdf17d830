"""The command `clean`: it shows what it would delete, deletes that and nothing else, and never beside a search."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from test_cli import resnas

from resnas.cli.cleaning import run_clean
from resnas.errors import ResnasError
from resnas.results import Recorded
from resnas.search import load_trials, open_study
from resnas.search.claim import claimed
from resnas.search.cleaning import delete, find_needless
from resnas.search.opening import set_attributes, trial_folder
from resnas.search.recording import end_unfinished
from resnas.study import Study


@pytest.fixture
def study(finished_study, tmp_path) -> Study:
    """Return a copy of a finished study of four trials, with what its interruptions may have left."""
    for name in ("space.yaml", "small.yaml"):
        shutil.copy(finished_study.path.parent / name, tmp_path)
    shutil.copytree(finished_study.results_folder, tmp_path / "small")
    study = Study.load(tmp_path / "small.yaml")
    for name in ("results.csv.1-a.partial", "trials/0001/result.json.1-b.partial"):
        (study.results_folder / name).write_bytes(b"x" * 1000)
    (study.results_folder / "trials" / "0009").mkdir()
    (study.results_folder / "trials" / "0009" / "log.txt").write_text("of a study that is gone")
    (study.results_folder / "trials" / "0008").mkdir()
    (study.results_folder / "trials" / "0008" / "result.json").write_text("a result all the same")
    (study.results_folder / "trials" / "notes").mkdir()
    return study


def files(study: Study) -> set[str]:
    """Return all files but those that SQLite makes and removes beside its own."""
    every = [path for path in study.results_folder.rglob("*") if path.is_file() and "study.db-" not in path.name]
    return {str(path.relative_to(study.results_folder)) for path in every}


def ranked(study: Study) -> list[int]:
    return [trial.number for trial in sorted(load_trials(study), key=lambda trial: trial.value)]


@pytest.fixture
def clean(study, capsys):
    """Return a function that runs the command in this process and returns what it prints."""

    def run(keep: int | None = None, dry_run: bool = False, format: str = "table", overrides: tuple = ()) -> str:
        run_clean(study.path, dry_run, keep, list(overrides), format)
        return capsys.readouterr().out

    return run


def test_a_dry_run_shows_all_and_deletes_nothing(study, clean):
    before = files(study)
    assert "would be deleted in 6 places" in clean(1, dry_run=True)
    rows = json.loads(clean(1, dry_run=True, format="json"))
    assert files(study) - {"lock"} == before - {"lock"}
    checkpoints = [row for row in rows if row["what"] == "checkpoints"]
    assert sorted(row["trial"] for row in checkpoints) == sorted(ranked(study)[1:])
    assert {row["why"] for row in checkpoints} == {"not among the best 1"}
    assert {(row["what"], row["trial"], row["path"]) for row in rows if row["what"] != "checkpoints"} == {
        ("folder", 9, "trials/0009"),
        ("unfinished file", None, "results.csv.1-a.partial"),
        ("unfinished file", 1, "trials/0001/result.json.1-b.partial"),
    }
    printed = clean(1, dry_run=True, format="csv")
    assert [int(row["bytes"]) for row in csv.DictReader(io.StringIO(printed))] == [row["bytes"] for row in rows]
    best = trial_folder(study, checkpoints[0]["trial"]) / "checkpoints"
    distinct = {path.stat().st_ino: path.stat().st_size for path in best.iterdir()}
    assert checkpoints[0]["bytes"] == sum(distinct.values())


def test_it_deletes_what_it_showed_and_nothing_else(study, clean):
    before = files(study)
    done = resnas("clean", study.path, "--keep", "1")
    assert done.returncode == 0, done.stderr
    assert "were deleted in 6 places" in done.stdout
    gone = before - files(study)
    kept = f"trials/{ranked(study)[0]:04d}/checkpoints"
    assert gone == {
        name
        for name in before
        if ("/checkpoints/" in name and kept not in name) or ".partial" in name or "/0009/" in name
    }
    for number in range(4):
        for name in ("result.json", "log.txt", "metrics.csv"):
            assert (trial_folder(study, number) / name).exists()
    assert (study.results_folder / "trials" / "notes").is_dir()
    assert "nothing to delete" in clean(1)
    assert [Recorded.of(trial).ending for trial in load_trials(study)] == ["complete"] * 4


def test_the_study_says_how_many_are_kept(study, clean):
    rows = json.loads(clean(dry_run=True, format="json"))
    assert not [row for row in rows if row["what"] == "checkpoints"]
    rows = json.loads(clean(dry_run=True, format="json", overrides=("search.keep_checkpoints=3",)))
    assert [row["trial"] for row in rows if row["what"] == "checkpoints"] == ranked(study)[3:]


def test_it_refuses_while_a_search_runs_the_study(study):
    before = files(study)
    with claimed(study):
        done = resnas("clean", study.path, "--keep", "0")
    assert done.returncode == 1
    assert "another search is running" in done.stderr
    assert files(study) - {"lock"} == before - {"lock"}


def test_interrupted_trials_keep_all_until_they_have_ended_as_another_one(study):
    """Two more trials, stopped by a dead coordinator: one of an architecture that ended since, one that will go on."""
    optuna_study = open_study(study)
    ended = Recorded.of(load_trials(study)[2])
    for key, replicate in ((ended.key, ended.replicate), ("another", 0)):
        trial = optuna_study.ask()
        set_attributes(optuna_study, trial, key=key, replicate=replicate)
        shutil.copytree(trial_folder(study, 0), trial_folder(study, trial.number))
        (trial_folder(study, trial.number) / "result.json").unlink()
    running = {(one.trial, one.what) for one in find_needless(study, load_trials(study))}
    assert not [found for found in running if found[0] == 5]
    end_unfinished(study, optuna_study, "interrupted: the search was stopped")
    found = {(one.trial, one.what): one for one in find_needless(study, load_trials(study), keep=0)}
    assert (found[4, "folder"].what, found[4, "folder"].trial) == ("folder", 4)
    assert (4, "checkpoints") not in found
    assert not [number for number, _ in found if number == 5]


def test_what_cannot_be_deleted_is_said_and_the_rest_is_gone(study, monkeypatch):
    found = find_needless(study, load_trials(study), keep=0)
    stubborn = found[1].path
    original = shutil.rmtree

    def refuse(path: Path, *arguments: object) -> None:
        if path == stubborn:
            raise PermissionError(13, "Permission denied", str(path))
        original(path, *arguments)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(ResnasError, match=f"1 of these could not be deleted; the first: .*{stubborn.name}"):
        delete(found)
    assert [one.path for one in found if os.path.lexists(one.path)] == [stubborn]
