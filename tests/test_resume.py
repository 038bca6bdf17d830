"""A trial that goes on from its last checkpoint ends as if nothing had happened; a wrong checkpoint is ignored."""

import contextlib
import csv
import logging
import os
import random
import signal
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from resnas.architecture import Architecture, Training
from resnas.executor import Ended, Limits, LocalExecutor, Reported
from resnas.study import Budget
from resnas.train import run_trial
from resnas.trial import TrialResult, TrialSpec

KHOP = {"khop": {"length": 16, "max_hops": 2}}
MIXING = {"windowed_depth_attention": {"window": 2, "old_sources": "remainder"}}


class Interrupted(BaseException):
    """The trial's process ends here."""


def spec(folder: Path, residual: object = "fixed", task: object = KHOP, steps: int = 12, **changes) -> TrialSpec:
    training = Training(learning_rate=0.01, mixing_lr_multiplier=3.0)
    architecture = Architecture(depth=2, width=16, heads=2, residual=residual, training=training)
    budget = Budget(steps=steps, batch_size=4, validations=4, validation_batches=2, measure_at=[0.5, 0.75, 1.0])
    made = TrialSpec(architecture.model_dump(mode="json"), task, budget.model_dump(mode="json"), 1, 2, str(folder))
    return replace(made, **changes)


def interrupted_at(spec: TrialSpec, reports: int) -> str:
    """Run a trial until its report number `reports`, before which it has written its checkpoint `reports` − 1."""
    count = 0

    def report(step: int, metrics: dict[str, float]) -> bool:
        nonlocal count
        count += 1
        if count == reports:
            raise Interrupted
        return False

    with pytest.raises(Interrupted):
        run_trial(spec, report)
    return str(Path(spec.folder) / "checkpoints" / "last.ckpt")


def ran(spec: TrialSpec) -> tuple[TrialResult, list]:
    reported: list = []
    return run_trial(spec, lambda step, metrics: reported.append((step, metrics)) or False), reported


def outcome(spec: TrialSpec, result: TrialResult) -> dict:
    """All that a trial leaves, without wall times and the names of folders."""
    folder = Path(spec.folder)
    kept = {}
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    for name in ("best", "last"):
        content = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
        (progress,) = (state for key, state in content["callbacks"].items() if "_Progress" in key)
        (saved,) = (state for key, state in content["callbacks"].items() if "Checkpoints" in key)
        history = {key: value for key, value in content["resnas.history"].items() if key != "step_times_s"}
        kept[name] = {
            "steps": len(content["resnas.history"]["step_times_s"]),
            "history": history,
            "reports": progress["reports"],
            "measurements": progress["measurements"],
            "best": saved["lowest_loss"],
            **{key: content[key] for key in ("global_step", "state_dict", "optimizer_states", "lr_schedulers")},
        }
    with (folder / "metrics.csv").open() as file:
        logged = list(csv.DictReader(file))
    metrics = {name: value for name, value in result.metrics.items() if not name.endswith("time_s")}
    return {"state": result.state, "metrics": metrics, "measured": result.measurements, "logged": logged, **kept}


def same(one: object, other: object) -> bool:
    """Whether nested values are equal, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def assert_same(one: dict, other: dict) -> None:
    for name in one:
        assert same(one[name], other[name]), (name, one[name], other[name])


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Return a function that runs a trial without interruption, once for each kind."""
    found: dict = {}

    def run(**options) -> tuple[dict, list]:
        key = repr(options)
        if key not in found:
            one = spec(tmp_path_factory.mktemp("whole"), **options)
            result, reported = ran(one)
            found[key] = outcome(one, result), reported
        return found[key]

    return run


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> dict:
    corpus = tmp_path_factory.mktemp("corpus") / "a.txt"
    corpus.write_text("\n".join(f"line {number} of {number**2 % 77}" for number in range(2000)))
    return {"text": {"corpus": str(corpus), "context": 16}}


@pytest.mark.parametrize("reports", [2, 3, 4])
def test_a_trial_goes_on_from_every_validation_as_if_nothing_had_happened(tmp_path, whole, reports):
    expected, reported = whole(residual=MIXING)
    last = interrupted_at(spec(tmp_path / "a", MIXING), reports)
    one = spec(tmp_path / "b", MIXING, checkpoint=last)
    result, reported_again = ran(one)
    assert reported_again == reported
    assert [step for step, _ in reported] == [3, 6, 9, 12]
    assert_same(outcome(one, result), expected)


@pytest.mark.parametrize(("task", "residual"), [("digits", "full_depth_attention"), ("text", "scalar_learned")])
def test_every_task_goes_on(tmp_path, whole, text, task, residual):
    options = {"residual": residual, "task": {"digits": {}} if task == "digits" else text}
    expected, reported = whole(**options)
    last = interrupted_at(spec(tmp_path / "a", **options), 3)
    one = spec(tmp_path / "b", **options, checkpoint=last)
    result, reported_again = ran(one)
    assert reported_again == reported
    assert_same(outcome(one, result), expected)


def test_validations_that_do_not_divide_the_steps(tmp_path, whole):
    expected, reported = whole(steps=14)
    last = interrupted_at(spec(tmp_path / "a", steps=14), 4)
    one = spec(tmp_path / "b", steps=14, checkpoint=last)
    result, reported_again = ran(one)
    assert [step for step, _ in reported_again] == [step for step, _ in reported] == [4, 8, 12, 14]
    assert_same(outcome(one, result), expected)


def test_a_trial_may_be_interrupted_again_and_go_on_in_its_own_folder(tmp_path, whole):
    expected, reported = whole(residual=MIXING)
    first = interrupted_at(spec(tmp_path / "a", MIXING), 2)
    second = interrupted_at(spec(tmp_path / "b", MIXING, checkpoint=first), 3)
    one = spec(tmp_path / "b", MIXING, checkpoint=second)
    result, reported_again = ran(one)
    assert reported_again == reported
    assert_same(outcome(one, result), expected)


def test_a_trial_whose_training_was_done_only_gives_its_result_again(tmp_path, whole):
    expected, reported = whole(residual=MIXING)
    done = spec(tmp_path / "a", MIXING)
    before, _ = ran(done)
    one = spec(tmp_path / "b", MIXING, checkpoint=str(tmp_path / "a" / "checkpoints" / "last.ckpt"))
    result, reported_again = ran(one)
    assert reported_again == reported
    assert_same(outcome(one, result), expected)
    assert result.metrics["step_time_s"] == before.metrics["step_time_s"]
    assert result.metrics["start_time_s"] == before.metrics["start_time_s"]


def test_wall_times_go_on_counting(tmp_path):
    last = interrupted_at(spec(tmp_path / "a"), 4)
    content = torch.load(last, weights_only=True)
    (before,) = (state for key, state in content["callbacks"].items() if "_Progress" in key)
    result, _ = ran(spec(tmp_path / "b", checkpoint=last))
    assert result.metrics["train_time_s"] > before["train_time_s"] > 0
    assert result.metrics["start_time_s"] == before["start_time_s"]


def test_the_best_checkpoint_stays_the_best(tmp_path, monkeypatch):
    """Where the loss only rises, the best checkpoint is that of the first validation, also after going on."""
    from resnas.train.module import TrialModule

    original = TrialModule.on_validation_epoch_start

    def validate_worse_and_worse(module) -> None:
        original(module)
        module._sums["val_loss"] = [1000.0 * module.global_step, 0.0]

    monkeypatch.setattr(TrialModule, "on_validation_epoch_start", validate_worse_and_worse)
    last = interrupted_at(spec(tmp_path / "a"), 3)
    assert torch.load(last, weights_only=True)["global_step"] == 6
    ran(spec(tmp_path / "b", checkpoint=last))
    best = torch.load(tmp_path / "b" / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 3
    assert torch.load(tmp_path / "b" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 12


def test_what_was_reported_may_prune_the_trial_that_goes_on(tmp_path):
    last = interrupted_at(spec(tmp_path / "a"), 3)
    result = run_trial(spec(tmp_path / "b", checkpoint=last), lambda step, metrics: step == 6)
    assert (result.state, result.reason) == ("pruned", "pruned at step 6")
    resumed = torch.load(last, weights_only=True)
    assert result.metrics["val_loss"] == resumed["resnas.history"]["validation_metrics"]["val_loss"]
    passed = run_trial(spec(tmp_path / "c", checkpoint=last), lambda step, metrics: step == 3)
    assert passed.state == "complete"


def test_random_numbers_in_training_go_on_too(tmp_path, whole, monkeypatch):
    from resnas.train.module import TrialModule

    original = TrialModule.training_step

    def noisy(module, batch, index):
        return original(module, batch, index) * (0.5 + torch.rand(()))

    monkeypatch.setattr(TrialModule, "training_step", noisy)
    alone = spec(tmp_path / "whole")
    expected = outcome(alone, ran(alone)[0])
    last = interrupted_at(spec(tmp_path / "a"), 3)
    one = spec(tmp_path / "b", checkpoint=last)
    assert_same(outcome(one, ran(one)[0]), expected)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    return Path(interrupted_at(spec(tmp_path_factory.mktemp("interrupted")), 3))


def started_over(folder: Path, whole, caplog, **changes) -> str:
    """Check that a trial ran from the beginning, and return the warning."""
    one = spec(folder, **changes)
    with caplog.at_level(logging.WARNING, "resnas"):
        result, reported = ran(one)
    assert [step for step, _ in reported] == [3, 6, 9, 12]
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("resnas")]
    assert "starting from the beginning" in warning
    if changes.keys() == {"checkpoint"}:
        assert_same(outcome(one, result), whole()[0])
    return warning


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9999])
def test_a_truncated_checkpoint_is_ignored(tmp_path, whole, caplog, interrupted, share):
    content = interrupted.read_bytes()
    broken = tmp_path / "a" / "last.ckpt"
    broken.parent.mkdir()
    broken.write_bytes(content[: int(share * len(content))])
    (tmp_path / "a" / "best.ckpt").write_bytes(content)
    assert str(broken) in started_over(tmp_path / "b", whole, caplog, checkpoint=str(broken))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_checkpoint_with_a_wrong_byte_is_ignored(tmp_path, whole, caplog, interrupted, share):
    content = bytearray(interrupted.read_bytes())
    with zipfile.ZipFile(interrupted) as parts:
        part = max(parts.infolist(), key=lambda one: one.file_size)
    content[part.header_offset + int((0.1 + 0.8 * share) * part.file_size)] ^= 0x10
    broken = tmp_path / "a" / "last.ckpt"
    broken.parent.mkdir()
    broken.write_bytes(content)
    (tmp_path / "a" / "best.ckpt").write_bytes(interrupted.read_bytes())
    assert str(broken) in started_over(tmp_path / "b", whole, caplog, checkpoint=str(broken))


def test_a_checkpoint_of_something_else_is_ignored(tmp_path, whole, caplog, interrupted):
    other = tmp_path / "a" / "last.ckpt"
    other.parent.mkdir()
    torch.save({"state_dict": {}}, other)
    assert "another format" in started_over(tmp_path / "b", whole, caplog, checkpoint=str(other))
    caplog.clear()
    assert "No such file" in started_over(tmp_path / "c", whole, caplog, checkpoint=str(tmp_path / "nowhere.ckpt"))
    caplog.clear()
    (tmp_path / "d").mkdir()
    alone = tmp_path / "d" / "last.ckpt"
    alone.write_bytes(interrupted.read_bytes())
    assert "best.ckpt" in started_over(tmp_path / "e", whole, caplog, checkpoint=str(alone))


@pytest.mark.parametrize("part", ["architecture", "task", "seed", "data_seed"])
def test_a_checkpoint_of_another_trial_is_ignored(tmp_path, whole, caplog, interrupted, part):
    changes: dict = {"seed": {"seed": 7}, "data_seed": {"data_seed": 7}, "architecture": {"residual": MIXING}}.get(
        part, {"task": {"khop": {"length": 16, "max_hops": 1}}}
    )
    warning = started_over(tmp_path, whole, caplog, checkpoint=str(interrupted), **changes)
    assert f"another {part}" in warning


def test_a_checkpoint_of_another_budget_is_ignored(tmp_path, caplog, interrupted):
    run_trial(spec(tmp_path, steps=8, checkpoint=str(interrupted)), lambda step, metrics: False)
    assert "another budget" in caplog.text


def test_other_data_is_another_trial(tmp_path, caplog, text):
    corpus = Path(text["text"]["corpus"])
    copy = tmp_path / "copy.txt"
    copy.write_bytes(corpus.read_bytes())
    task = {"text": {"corpus": str(copy), "context": 16}}
    last = interrupted_at(spec(tmp_path / "a", task=task), 3)
    copy.write_bytes(corpus.read_bytes().replace(b"line", b"lime"))
    ran(spec(tmp_path / "b", task=task, checkpoint=last))
    assert "another data" in caplog.text


@pytest.mark.slow
def test_a_trial_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path):
    """SIGKILL, again and again, in the process of a trial; each time it goes on from what it has left."""
    options: dict = {"residual": MIXING, "steps": 240}
    many = {"validations": 40}
    alone = spec(tmp_path / "alone", **options)
    alone = replace(alone, budget=alone.budget | many)
    expected = outcome(alone, ran(alone)[0])
    executor, chance = LocalExecutor(workers=1), random.Random(1)
    last, kills, steps = None, 0, []
    for number in range(200):
        one = replace(spec(tmp_path / str(number), **options, checkpoint=last), budget=alone.budget)
        executor.submit(number, one, Limits())
        (running,) = executor._running.values()
        deadline = time.monotonic() + chance.uniform(0.15, 0.6)
        ended: list[Ended] = []
        while not ended:
            for event in executor.events(0.01):
                if isinstance(event, Reported):
                    executor.answer(number, False)
                else:
                    ended.append(event)
            if time.monotonic() > deadline and not ended:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and `events` is about to say so
                    os.kill(running.process.pid, signal.SIGKILL)
        result = ended[0].result
        assert "starting from the beginning" not in (tmp_path / str(number) / "log.txt").read_text()
        if result.state == "complete":
            break
        assert result.cause == "killed"
        kills += 1
        if (path := tmp_path / str(number) / "checkpoints" / "last.ckpt").is_file():
            last = str(path)
            steps.append(torch.load(path, weights_only=True)["global_step"])
    print(f"{kills} kills, checkpoints at {steps}")
    executor.stop()
    assert result.state == "complete"
    assert kills > 3
    assert steps == sorted(steps)
    assert_same(outcome(one, result), expected)
