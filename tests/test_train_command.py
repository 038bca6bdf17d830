"""The command `train`: one architecture for longer, interrupted and gone on with, options of Lightning's Trainer."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_resume import outcome, same

from resnas.architecture import Architecture, Training
from resnas.errors import InputError
from resnas.export.choice import chosen
from resnas.export.trained import read_record, write_record
from resnas.lock import locked
from resnas.residual import TOPOLOGIES
from resnas.search import load_trials
from resnas.space import changed, load_architecture, plain
from resnas.study import Budget, Study
from resnas.train import run_trial
from resnas.train.trainer import OWNED, check_options
from resnas.trial import TrialSpec

ROOT = Path(__file__).parent.parent
SMALL = (
    "budget.steps=8",
    "budget.validations=2",
    "budget.validation_batches=2",
    "task={khop: {length: 16, max_hops: 2}}",
)


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "cli.py"), "train", *map(str, arguments)]


def train(folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.fixture
def here(files, monkeypatch, capsys):
    """Return a function that runs the command in this process, and gives its exit code and what it says."""
    from resnas.cli import main

    def run(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.chdir(files)
        monkeypatch.setattr(sys, "argv", ["cli.py", "train", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        return ending.value.code, said.out, said.err

    return run


@pytest.fixture
def files(tmp_path):
    architecture = Architecture(depth=2, width=16, heads=2, residual="full_depth_attention")
    (tmp_path / "one.yaml").write_text(json.dumps(plain(architecture)))  # JSON is YAML
    (tmp_path / "space.yaml").write_text("resnas: 1\narchitecture:\n  depth: [2, 4]\n")
    (tmp_path / "study.yaml").write_text(
        "resnas: 1\nspace: space.yaml\ntask: {khop: {length: 16, max_hops: 2}}\n"
        "budget: {steps: 400, batch_size: 4, validations: 8, validation_batches: 2, measure_at: [0.5, 1.0]}\n"
    )
    return tmp_path


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_goes_on_bit_for_bit(files):
    arguments = ("study.yaml", "--architecture", "one.yaml", "--seed", 3)
    whole = train(files, *arguments, "--output", "whole", "--format", "json")
    assert whole.returncode == 0, whole.stderr
    (key,) = {load_architecture(files / "one.yaml").key}
    folder = files / "study" / "trained" / f"{key}-400steps-seed3"
    with subprocess.Popen(command(*arguments), cwd=files, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step 100/"):
                process.send_signal(signal.SIGINT)
                break
        said = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert "Go on with: python cli.py train study.yaml --architecture one.yaml --seed 3" in said
    assert not (folder / "result.json").exists()
    interrupted = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    before = interrupted["global_step"]
    assert 100 <= before < 400
    again = train(files, *arguments, "--format", "json")
    assert again.returncode == 0, again.stderr
    assert f"step {before + 50}/400" in again.stderr
    times, times_before = (
        content["resnas.history"]["step_times_s"]
        for content in (torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True), interrupted)
    )
    assert torch.equal(times[:before], times_before)  # else it has started over
    outcomes = []
    for one in (folder, files / "whole"):
        record = read_record(one)
        outcomes.append(outcome(record.spec, record.result))
        assert record.result.metrics["test_loss"] > 0
        assert {"architecture.yaml", "result.json", "metrics.csv", "tensorboard", "log.txt", "spec.json"} <= {
            path.name for path in one.iterdir()
        }
    assert all(same(outcomes[0][name], outcomes[1][name]) for name in outcomes[1])
    values = {row["metric"]: row["value"] for row in json.loads(again.stdout)}
    expected = {row["metric"]: row["value"] for row in json.loads(whole.stdout)}
    assert values.keys() == expected.keys()
    assert values["test_loss"] == expected["test_loss"]
    finished = train(files, *arguments, "--format", "json")
    assert "Trained already" in finished.stderr
    assert json.loads(finished.stdout) == json.loads(again.stdout)


def test_the_study_gives_its_best_and_any_by_its_key(finished_study):
    trials = load_trials(finished_study)
    best = chosen(finished_study, trials, None)
    rows = list(csv.DictReader((finished_study.results_folder / "results.csv").read_text().splitlines()))
    assert best.key == min(rows, key=lambda row: float(row["val_loss"]))["key"]
    for row in rows:
        assert chosen(finished_study, trials, row["key"][:6]).key == row["key"]
    with pytest.raises(InputError, match=r"'' begins 4 keys of the study 'small'"):
        chosen(finished_study, trials, "")
    near = f"{best.key[:-1]}x"
    with pytest.raises(InputError, match=rf"unknown key '{near}'.*best ones first: {best.key}.*mean '{best.key}'"):
        chosen(finished_study, trials, near)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--architecture", "space.yaml"], ["space.yaml:3", "architecture.depth", "must be one value"]),
        (["--architecture", "twp.yaml"], ["twp.yaml", "no such file"]),
        (["--architecture", "3f"], ["no results yet", "python cli.py search study.yaml"]),
        (["--architecture", "wrong.yaml"], ["wrong.yaml:3", "widht", "did you mean 'width'"]),
        (["--architecture", "odd.yaml"], ["odd.yaml:2", "width 16 is not divisible by heads 3"]),
        (["--set", "training.learning_rate=0"], ["--set training.learning_rate=0", "above 0"]),
        (["--set", "budget.stpes=3"], ["--set budget.stpes=3", "did you mean 'steps'"]),
        (["--steps", "4"], ["8 validations do not fit into 4 steps"]),
        (["--trainer", "max_steps=3"], ["--trainer max_steps", "use --steps"]),
        (["--trainer", "logger=null"], ["--trainer logger", "always written"]),
        (["--trainer", "presicion=16"], ["--trainer presicion", "did you mean 'precision'"]),
        (["--trainer", "precision=7"], ["--trainer precision=7", "Lightning refuses"]),
        (["--trainer", "accumulate_grad_batches=0"], ["accumulate_grad_batches", "at least 1", "not 0"]),
        (["--trainer", "devices"], ["--trainer devices", "key=value"]),
        (["--trainer", "devices: [1"], ["--trainer devices", "key=value"]),
    ],
)
def test_bad_input_is_one_sentence(files, here, arguments, words):
    (files / "wrong.yaml").write_text("resnas: 1\narchitecture:\n  widht: 16\n")
    (files / "odd.yaml").write_text("resnas: 1\narchitecture: {width: 16, heads: 3}\n")
    given = arguments if "--architecture" in arguments else ["--architecture", "one.yaml", *arguments]
    code, _, error = here("study.yaml", *given)
    said = error.strip().splitlines()
    assert code == 2, said
    assert said[-1].startswith("resnas: ")
    for word in words:
        assert word in said[-1]


def test_every_owned_option_is_one_of_lightning_and_the_others_pass():
    import inspect

    from lightning.pytorch import Trainer

    assert OWNED.keys() <= inspect.signature(Trainer).parameters.keys()
    check_options(
        {name: None for name in inspect.signature(Trainer).parameters if name not in OWNED}
        | {"accumulate_grad_batches": 2}
    )


def test_a_folder_keeps_to_what_was_trained_there(files, here):
    options = [part for one in SMALL for part in ("--set", one)]
    arguments = ("study.yaml", "--architecture", "one.yaml", "--output", "out", *options)
    code, shown, said = here(*arguments)
    assert code == 0, said
    assert "test_loss" in shown
    assert "python cli.py export --trained out" in shown
    code, shown, said = here(*arguments, "--format", "csv")
    assert (code, "Trained already, in out" in said) == (0, True)
    assert shown.startswith("metric,value,unit")
    code, _, said = here(*arguments, "--seed", 5)
    assert code == 2
    assert "out: was trained with other settings: seed: 0 → 5; data_seed: 0 → 5" in said
    (files / "out" / "spec.json").write_text("{}")
    code, _, said = here(*arguments)
    assert code == 2
    assert "spec.json: cannot be read" in said


def test_of_two_commands_in_one_folder_the_second_says_who_is_there_and_writes_nothing(files, here):
    options = [part for one in SMALL for part in ("--set", one)]
    (files / "out").mkdir()
    with locked(files / "out" / "lock", "the first"):
        code, _, said = here("study.yaml", "--architecture", "one.yaml", "--output", "out", *options)
        assert code == 1
        assert f"another train is running in out: process {os.getpid()} on " in said
        assert [path.name for path in (files / "out").iterdir()] == ["lock"]
    code, _, said = here("study.yaml", "--architecture", "one.yaml", "--output", "out", *options)
    assert code == 0, said


def test_a_folder_that_cannot_be_made_is_one_sentence(files, here):
    code, _, said = here("study.yaml", "--architecture", "one.yaml", "--output", "one.yaml/out")
    assert code == 2
    assert said.endswith("cannot write to one.yaml/out: Not a directory\n")


@pytest.mark.parametrize(
    "residual", [*[name for name in TOPOLOGIES if name[0] != "w"], {"windowed_depth_attention": {"window": 2}}]
)
def test_the_file_of_an_architecture_gives_it_back(tmp_path, residual):
    from resnas.files import write_yaml

    one = Architecture(
        depth=3, width=8, heads=2, mlp_ratio=1 / 3, residual=residual, training=Training(learning_rate=1e-5 / 3)
    )
    write_yaml(tmp_path / "one.yaml", plain(one))
    assert load_architecture(tmp_path / "one.yaml") == one
    assert load_architecture(tmp_path / "one.yaml").key == one.key
    assert changed(one, ["training.weight_decay=0.5"]).training.weight_decay == 0.5
    assert changed(one, ["architecture.residual=scalar_learned"]).family == "scalar_learned"


def spec(folder: Path, **trainer: object) -> TrialSpec:
    architecture = Architecture(depth=2, width=16, heads=2, residual="scalar_learned")
    budget = Budget(steps=12, batch_size=4, validations=4, validation_batches=2, measure_at=[0.5, 1.0])
    task = {"khop": {"length": 16, "max_hops": 2}}
    return TrialSpec(
        architecture.model_dump(mode="json"), task, budget.model_dump(mode="json"), 1, 2, str(folder), trainer=trainer
    )


def test_accumulated_gradients_make_one_step_and_go_on(tmp_path):
    """Steps, validations, measurements and logs are those of steps, not of batches; also after an interruption."""
    from dataclasses import replace

    from test_resume import Interrupted

    reported = []
    one = spec(tmp_path / "whole", accumulate_grad_batches=3)
    result = run_trial(one, lambda step, metrics: reported.append(step) or False)
    assert reported == [3, 6, 9, 12]
    assert [measured["step"] for measured in result.measurements] == [6, 12]
    saved = torch.load(tmp_path / "whole" / "checkpoints" / "last.ckpt", weights_only=True)
    history = saved["resnas.history"]
    assert [len(history[name]) for name in ("losses", "gradient_norms", "step_times_s")] == [36, 12, 12]
    part = spec(tmp_path / "part", accumulate_grad_batches=3)

    def interrupt(step, metrics):
        if step == 9:
            raise Interrupted
        return False

    with pytest.raises(Interrupted):
        run_trial(part, interrupt)
    again = replace(part, checkpoint=str(tmp_path / "part" / "checkpoints" / "last.ckpt"))
    assert same(outcome(again, run_trial(again, lambda step, metrics: False)), outcome(one, result))


def test_a_checkpoint_of_other_trainer_options_is_not_gone_on_with(tmp_path, caplog):
    from dataclasses import replace

    run_trial(spec(tmp_path / "a", accumulate_grad_batches=2), lambda step, metrics: step == 6)
    last = str(tmp_path / "a" / "checkpoints" / "last.ckpt")
    for name, options in (("none", {}), ("other", {"accumulate_grad_batches": 3})):
        caplog.clear()
        run_trial(replace(spec(tmp_path / name, **options), checkpoint=last), lambda step, metrics: False)
        assert "another trainer" in caplog.text
    caplog.clear()
    same_options = {"accumulate_grad_batches": 2, "max_time": "01:00:00:00"}
    run_trial(replace(spec(tmp_path / "time", **same_options), checkpoint=last), lambda step, metrics: False)
    assert not caplog.text


def test_a_limit_of_time_ends_it_early_and_more_time_goes_on(files, here):
    arguments = ("study.yaml", "--architecture", "one.yaml", "--output", "out", "--set", "budget.validations=2")
    code, _, said = here(*arguments, "--trainer", "max_time={seconds: 0}")
    assert code == 2
    assert "before the first training step" in said
    code, _, said = here(*arguments, "--trainer", "max_time={milliseconds: 300}")
    assert code == 0, said
    (stopped,) = re.findall(r"stopped at step (\d+) of 400. Give more time", said)
    assert not (files / "out" / "result.json").exists()
    code, _, said = here(*arguments)
    assert code == 0, said
    assert int(stopped) < 200
    assert re.findall(r"step (\d+)/400", said) == [stopped, "200", "400"]
    assert read_record(files / "out").result.state == "complete"


@pytest.mark.slow
def test_two_devices_are_as_good_as_two_batches_per_step(files):
    """Each device takes every other batch, so the mean gradient of a step is that of two accumulated batches."""
    options = [part for one in SMALL for part in ("--set", one)]
    values = {}
    for option in ("devices=2", "accumulate_grad_batches=2"):
        done = train(
            files, "study.yaml", "--architecture", "one.yaml", "--output", option, "--trainer", option,
            "--format", "json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        values[option] = {row["metric"]: row["value"] for row in json.loads(done.stdout)}
    two, accumulated = values.values()
    for name in ("val_loss", "test_loss", "dilution", "gradient_norm_max"):
        assert two[name] == pytest.approx(accumulated[name], rel=1e-4), name


def test_a_record_survives_that_its_folder_moves_with_the_study(tmp_path, finished_study):
    one = spec(finished_study.results_folder / "trained" / "x")
    write_record(Path(one.folder), one, finished_study)
    record = read_record(Path(one.folder))
    assert record.study == finished_study.path
    assert Study.load(record.study).name == finished_study.name
    assert json.loads((Path(one.folder) / "spec.json").read_text())["study"] == "../../../small.yaml"
