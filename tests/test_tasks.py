"""What every task of the registry must keep to; a new task is tested here without a new line."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch

from resnas.tasks import TASKS
from resnas.tasks.task import IGNORED, Task, TaskData

BATCH_SIZE = 16
VARIANTS: list[Task] = [
    *(task() for task in TASKS.values()),
    TASKS["text"](context=7),
    TASKS["digits"](patch=1),
    TASKS["digits"](patch=4),
    TASKS["khop"](alphabet=6, length=20, max_hops=2),
]


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def task(request: pytest.FixtureRequest) -> Task:
    return request.param


@pytest.fixture(scope="module")
def data(task: Task) -> TaskData:
    return task.load()


def first_batches(data: TaskData, seed: int, count: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(itertools.islice(data.train_batches(BATCH_SIZE, seed), count))


def equal(left, right) -> bool:
    return all(torch.equal(a, b) for a, b in zip(itertools.chain(*left), itertools.chain(*right), strict=True))


def perfect_logits(targets: torch.Tensor, outputs: int) -> torch.Tensor:
    return 1000.0 * torch.nn.functional.one_hot(targets.clamp(min=0), outputs)


def test_batches_have_the_shape_that_the_task_promises(task: Task, data: TaskData):
    shape = task.shape()
    for inputs, targets in [*first_batches(data, 0), *data.batches("validation", BATCH_SIZE, 2)]:
        if shape.inputs == "tokens":
            assert inputs.shape == (BATCH_SIZE, shape.context)
            assert inputs.dtype == torch.int64
            assert inputs.min() >= 0
            assert inputs.max() < shape.input_size
        else:
            assert inputs.shape == (BATCH_SIZE, shape.context, shape.input_size)
            assert inputs.dtype == torch.float32
        assert targets.shape == ((BATCH_SIZE,) if shape.pooled else (BATCH_SIZE, shape.context))
        assert targets.dtype == torch.int64
        assert inputs.device.type == targets.device.type == "cpu"
        assert ((targets == IGNORED) | ((targets >= 0) & (targets < shape.outputs))).all()


def test_every_class_and_every_token_occurs(task: Task, data: TaskData):
    shape = task.shape()
    inputs, targets = next(data.train_batches(4096, 0))
    if shape.outputs <= 64:
        assert set(targets[targets != IGNORED].tolist()) == set(range(shape.outputs))
    if shape.inputs == "tokens" and shape.input_size <= 64:
        assert set(inputs.flatten().tolist()) == set(range(shape.input_size))


def test_the_seed_decides_the_training_batches(data: TaskData):
    assert equal(first_batches(data, 5), first_batches(data, 5))
    assert not equal(first_batches(data, 5), first_batches(data, 6))


def test_training_batches_differ_from_one_another(data: TaskData):
    first, second, _ = first_batches(data, 5)
    assert not equal([first], [second])


def test_nothing_global_is_seeded(data: TaskData):
    states = []
    for _ in range(2):
        first_batches(data, 5)
        data.batches("validation", BATCH_SIZE)
        states.append(torch.random.get_rng_state())
        torch.rand(1)
    assert not torch.equal(*states)


def test_two_loads_are_the_same_data(task: Task, data: TaskData):
    again = task.load()
    assert again.sha256 == data.sha256
    assert len(data.sha256) == 64
    assert equal(first_batches(again, 1), first_batches(data, 1))
    assert equal(again.batches("test", BATCH_SIZE), data.batches("test", BATCH_SIZE))


def test_hashes_of_different_data_differ():
    assert len({task.load().sha256 for task in VARIANTS}) == len(VARIANTS)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_batches_are_fixed_and_a_limit_takes_the_first(data: TaskData, split):
    batches = data.batches(split, BATCH_SIZE)
    assert equal(batches, data.batches(split, BATCH_SIZE))
    assert equal(batches[:2], data.batches(split, BATCH_SIZE, limit=2))
    assert all(len(inputs) == BATCH_SIZE for inputs, _ in batches[:-1])
    whole = torch.cat([inputs for inputs, _ in batches])
    assert torch.equal(whole, torch.cat([inputs for inputs, _ in data.batches(split, 100)]))


def test_validation_and_test_differ(data: TaskData):
    assert not equal(data.batches("validation", BATCH_SIZE, 1), data.batches("test", BATCH_SIZE, 1))


def test_metrics_are_declared_and_perfect_logits_are_perfect(task: Task, data: TaskData):
    for batch in data.batches("validation", BATCH_SIZE, 3):
        logits = perfect_logits(batch[1], task.shape().outputs)
        metrics = data.metrics(logits, batch)
        assert list(metrics) == list(task.metric_directions)
        assert all(isinstance(number, float) for ratio in metrics.values() for number in ratio)
        perfect = {"bits_per_byte": 0.0, "above_shortcut": None}
        for name, (numerator, denominator) in metrics.items():
            expected = perfect.get(name, 1.0)
            if expected is not None and denominator:
                assert numerator / denominator == pytest.approx(expected)


def test_ratio_of_sums_does_not_depend_on_the_batch_size(task: Task, data: TaskData):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(300, task.shape().outputs, generator=generator)

    def logits_of(inputs: torch.Tensor) -> torch.Tensor:
        if task.shape().inputs == "tokens":
            return weights[inputs]
        return inputs.mean(1) @ weights[: inputs.shape[2]]

    results = []
    for batch_size, limit in ((8, 8), (64, 1)):
        sums: dict[str, list[float]] = {}
        for batch in data.batches("test", batch_size, limit):
            for name, ratio in data.metrics(logits_of(batch[0]), batch).items():
                sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0]), ratio, strict=True)]
        results.append({name: numerator / denominator for name, (numerator, denominator) in sums.items()})
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_baselines_are_named_after_metrics(task: Task):
    baselines = task.baselines()
    assert baselines
    for name, value in baselines.items():
        metric, source = name.split("/")
        assert metric in task.metric_directions
        assert source
        assert 0 < value <= 8


def test_registry_loads_no_heavy_library():
    code = """
import sys
from resnas.tasks import TASKS
for task in TASKS.values():
    task().shape(), task().metric_directions, task.model_json_schema()
heavy = {"torch", "numpy", "sklearn", "scipy", "lightning", "optuna"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
