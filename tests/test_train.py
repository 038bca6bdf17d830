"""One trial: paired batches, optimiser groups, schedule, files, endings, and what Lightning adds to a bare loop."""

import csv
import itertools
import json
import math
import statistics
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch import Callback

from resnas.architecture import Architecture, Training
from resnas.errors import ResnasError, TrialFailed
from resnas.model import Model, loss_function
from resnas.study import Budget
from resnas.tasks import TASKS
from resnas.train import inspect_task, run_trial
from resnas.train.module import FINAL_LEARNING_RATE_SHARE, TrialModule, learning_rate_share, parameter_groups
from resnas.train.stability import loss_spikes
from resnas.train.trainer import BatchStream, make_trainer
from resnas.trial import TrialSpec

TASK = {"khop": {"length": 16, "max_hops": 2}}


def spec(folder, residual="fixed", steps=6, **changes) -> TrialSpec:
    architecture = Architecture(
        depth=2, width=16, heads=2, residual=residual, training=changes.pop("training", Training())
    )
    budget = Budget(steps=steps, batch_size=4, validations=2, validation_batches=2, measure_at=[0.5, 1.0])
    made = TrialSpec(architecture.model_dump(mode="json"), TASK, budget.model_dump(mode="json"), 1, 2, str(folder))
    return replace(made, **changes)


def go_on(step: int, value: float) -> bool:
    return False


def test_a_trial_leaves_its_files_and_metrics(tmp_path):
    reported = []
    result = run_trial(
        spec(tmp_path, "full_depth_attention"), lambda step, value: reported.append((step, value)) or False
    )
    assert result.state == "complete"
    assert [step for step, _ in reported] == [3, 6]
    assert result.metrics["val_loss"] == reported[-1][1]["val_loss"]
    assert result.metrics["parameters"] == sum(
        p.numel() for p in model_of(spec(tmp_path, "full_depth_attention")).parameters()
    )
    assert [measured["step"] for measured in result.measurements] == [3, 6]
    assert result.metrics["dilution"] == result.measurements[-1]["metrics"]["dilution"]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert any(row["val_loss"] for row in rows)
    assert any(row["gradient_norm"] for row in rows)
    assert list((tmp_path / "tensorboard").iterdir())
    json.dumps(result.to_dict(), allow_nan=False)
    torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)


def model_of(spec: TrialSpec) -> Model:
    (name, options), *_ = spec.task.items()
    return Model(Architecture(**spec.architecture), TASKS[name](**options).shape())


def test_the_test_split_is_measured_only_where_that_is_asked_for_and_changes_nothing_else(tmp_path):
    plain, tested = (run_trial(spec(tmp_path / str(test), test=test), go_on).metrics for test in (False, True))
    assert tested.keys() - plain.keys() >= {"test_loss", "test_accuracy"}
    assert {name: tested[name] for name in plain if "time" not in name} == {
        name: value for name, value in plain.items() if "time" not in name
    }
    model = model_of(spec(tmp_path))
    saved = torch.load(tmp_path / "True" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    model.load_state_dict({name.removeprefix("model."): value for name, value in saved.items()})
    (name, options), *_ = TASK.items()
    data = TASKS[name](**options).load()
    with torch.no_grad():
        losses = [
            (float(loss_function(model(inputs), targets)), int((targets >= 0).sum()))
            for inputs, targets in data.batches("test", 64)
        ]
    counted = sum(count for _, count in losses)
    expected = sum(loss * count for loss, count in losses) / counted
    assert tested["test_loss"] == pytest.approx(expected, rel=1e-5)
    assert tested["test_loss"] != tested["val_loss"]


def test_equal_specs_give_equal_metrics_and_other_seeds_do_not(tmp_path):
    def metrics(name, **changes):
        metrics = run_trial(spec(tmp_path / name, "scalar_learned", **changes), go_on).metrics
        return {name: value for name, value in metrics.items() if not name.endswith("time_s")}

    first = metrics("a")
    assert metrics("b") == first
    assert metrics("c", seed=9)["val_loss"] != first["val_loss"]
    assert metrics("d", data_seed=9)["val_loss"] != first["val_loss"]


def test_batches_are_the_same_whatever_the_architecture(tmp_path, monkeypatch):
    from resnas.train import module

    seen = {}
    for residual in ("fixed", "full_depth_attention"):
        batches = []
        original = module.TrialModule.training_step

        def step(self, batch, index, original=original, batches=batches):
            batches.append(torch.cat([tensor.flatten() for tensor in batch]))
            return original(self, batch, index)

        with monkeypatch.context() as patch:
            patch.setattr(module.TrialModule, "training_step", step)
            run_trial(spec(tmp_path / residual, residual), go_on)
        seen[residual] = torch.stack(batches)
    assert torch.equal(*seen.values())


def test_the_last_step_is_validated_even_where_validations_do_not_divide_the_steps(tmp_path):
    reported = []
    result = run_trial(spec(tmp_path, steps=7), lambda step, value: reported.append((step, value)) or False)
    assert [step for step, _ in reported] == [4, 7]
    assert result.metrics["val_loss"] == reported[-1][1]["val_loss"]
    last = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 7


@pytest.mark.parametrize("residual", ["fixed", "full_depth_attention"])
def test_bfloat16_trains_to_about_the_same_loss_and_measures_in_float32(tmp_path, residual):
    results = {}
    for precision in ("auto", "float32", "bfloat16"):
        one = spec(tmp_path / precision, residual, steps=20)
        results[precision] = run_trial(replace(one, budget={**one.budget, "precision": precision}), go_on)
    losses = {precision: result.metrics["val_loss"] for precision, result in results.items()}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], abs=0.05)
    assert results["bfloat16"].metrics["dilution"] == pytest.approx(results["float32"].metrics["dilution"], abs=0.1)
    if not torch.cuda.is_available():
        assert losses["auto"] == losses["float32"]


def test_pruning_ends_a_trial_after_a_report(tmp_path):
    result = run_trial(spec(tmp_path), lambda step, value: True)
    assert (result.state, result.reason) == ("pruned", "pruned at step 3")


def test_a_loss_that_is_not_finite_fails_with_that_reason(tmp_path):
    reckless = Training(learning_rate=1e30, gradient_clip=0.0, warmup_share=0.0)
    with pytest.raises(TrialFailed, match=r"^(nan|inf) at training step \d+$"):
        run_trial(spec(tmp_path, training=reckless, steps=30), go_on)


def test_parameters_that_a_topology_does_not_announce_fail_the_trial(tmp_path, monkeypatch):
    from resnas.residual import ScalarLearned

    monkeypatch.setattr(ScalarLearned, "mixing_parameters", lambda self, sublayers, width: 3)
    with pytest.raises(ResnasError, match=r"12 more parameters than ScalarLearned.mixing_parameters\(\) says"):
        run_trial(spec(tmp_path, "scalar_learned"), go_on)


def test_inspect_task_tells_hash_and_baselines():
    facts = inspect_task(TASK)
    assert facts["data_sha256"] == inspect_task(TASK)["data_sha256"]
    assert any(name.startswith("accuracy") for name in facts["baselines"])
    json.dumps(facts)


@pytest.mark.parametrize("residual", ["fixed", "scalar_learned", "full_depth_attention"])
@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_only_matrices_decay_and_mixing_has_its_own_rate(residual, positions, norm):
    architecture = Architecture(depth=2, width=16, heads=2, residual=residual, positions=positions, norm=norm)
    model = Model(architecture, TASKS["khop"]().shape())
    groups = parameter_groups(model, Training(learning_rate=0.01, mixing_lr_multiplier=7.0, weight_decay=0.3))
    by_parameter = {id(parameter): group for group in groups for parameter in group["params"]}
    assert len(by_parameter) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        group = by_parameter[id(parameter)]
        mixing = name.startswith("residual.")
        assert group["lr"] == pytest.approx(0.07 if mixing else 0.01)
        decayed = parameter.ndim == 2 and not mixing and not name.startswith("positions")
        assert group["weight_decay"] == (0.3 if decayed else 0.0)


@given(st.integers(1, 500), st.floats(0, 1))
def test_learning_rate_rises_to_its_peak_and_ends_at_a_tenth(steps, warmup_share):
    shares = [learning_rate_share(step, steps, warmup_share) for step in range(steps + 1)]
    assert all(0 < share <= 1 for share in shares)
    assert max(shares) == pytest.approx(1) or warmup_share == 1
    warmup = round(warmup_share * steps)
    assert all(a <= b for a, b in itertools.pairwise(shares[:warmup]))
    if warmup < steps:
        assert shares[-1] == pytest.approx(FINAL_LEARNING_RATE_SHARE)


def test_loss_spikes_are_runs_above_what_is_usual():
    calm = [2 + 0.01 * math.sin(7 * step) for step in range(200)]
    assert loss_spikes(calm) == 0
    assert loss_spikes(calm[:20]) == 0
    assert loss_spikes([*calm[:100], 5.0, 5.0, *calm[100:150], 9.0, *calm[150:]]) == 2


@pytest.mark.timed
def test_lightning_costs_at_most_a_tenth_over_a_bare_loop(tmp_path):
    """The same steps of a quickstart trial, taken in turns; medians of the seconds per step."""
    task = TASKS["text"]()
    data, architecture = task.load(), Architecture()
    budget = Budget(steps=40, batch_size=16, validations=1, validation_batches=1, measure_at=[1.0])

    def medians(marks: list[float]) -> float:
        return statistics.median(b - a for a, b in itertools.pairwise(marks[5:]))

    def bare() -> float:
        model = Model(architecture, task.shape())
        optimizer = torch.optim.AdamW(parameter_groups(model, architecture.training), betas=(0.9, 0.95), fused=True)
        batches, marks = data.train_batches(budget.batch_size, 1), []
        for _ in range(budget.steps):
            marks.append(time.perf_counter())
            inputs, targets = next(batches)
            loss = loss_function(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return medians(marks)

    def with_lightning(number: int) -> float:
        marks = []

        class Clock(Callback):
            def on_train_batch_start(self, *arguments):
                marks.append(time.perf_counter())

        module = TrialModule(architecture, task.shape(), data, budget.steps)
        trainer = make_trainer(tmp_path / str(number), budget, Clock())
        trainer.fit(
            module, BatchStream(lambda: data.train_batches(budget.batch_size, 1)), BatchStream(lambda: iter(held_out))
        )
        return medians(marks)

    held_out = data.batches("validation", 4, limit=1)
    ratios = [with_lightning(number) / bare() for number in range(5)]
    print("Lightning over a bare loop:", ratios)
    assert statistics.median(ratios) < 1.10, ratios
