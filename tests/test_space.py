import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnas import cost
from resnas.architecture import Architecture, Stack, Training
from resnas.errors import InputError
from resnas.residual import TOPOLOGIES, Fixed, FullDepthAttention, WindowedDepthAttention
from resnas.space import Choices, Range, SearchSpace
from resnas.tasks.task import TaskShape
from resnas.yaml_file import parse_yaml

ROOT = Path(__file__).parents[1]
SHAPE = TaskShape("tokens", 256, 64, outputs=256, causal=True, pooled=False)

SPACE = """\
resnas: 1
architecture:
  depth: [6, 12]
  width: 48
  heads: 4
  residual:
    - fixed
    - scalar_learned
    - windowed_depth_attention: {window: [2, 4, 8], keep_embedding: [true, false]}
    - full_depth_attention: {key_norm: [rms, none]}
training:
  learning_rate: {low: 1e-3, high: 1e-2, log: true}
  mixing_lr_multiplier: [1, 3, 10]
constraints:
  max_parameters: 2e6
"""


def read(text: str) -> SearchSpace:
    return SearchSpace.from_document(parse_yaml(text, "spaces/x.yaml"))


def changed(old: str, new: str) -> str:
    assert SPACE.count(old) == 1
    return SPACE.replace(old, new)


def test_parameters_are_named_by_their_place_in_the_file():
    residual = "architecture.residual"
    windowed = f"{residual}.windowed_depth_attention"
    assert read(SPACE).parameters == {
        "architecture.depth": Choices((6, 12)),
        residual: Choices(tuple(TOPOLOGIES)),
        f"{windowed}.window": Choices((2, 4, 8)),
        f"{windowed}.keep_embedding": Choices((True, False)),
        f"{residual}.full_depth_attention.key_norm": Choices(("rms", "none")),
        "training.learning_rate": Range(1e-3, 1e-2, log=True),
        "training.mixing_lr_multiplier": Choices((1.0, 3.0, 10.0)),
    }


def test_the_smallest_space_is_the_default_architecture():
    space = read("resnas: 1")
    assert space.parameters == {}
    assert list(space.enumerate()) == [Architecture()]
    assert space.count() == 1
    assert space.baseline() == {}


def test_keys_without_anything_below_are_the_defaults():
    assert read("resnas: 1\narchitecture:\ntraining:\nconstraints:\n") == read("resnas: 1")


@pytest.mark.parametrize("record", [Stack, Training, *TOPOLOGIES.values()])
def test_every_field_of_every_record_may_be_searched(record):
    samples = {bool: [True, False], int: [8, 16], float: [0.25, 0.5]}
    for name, field in record.model_fields.items():
        values = samples.get(field.annotation) or list(field.annotation.__args__)
        if record in (Stack, Training):
            section = "architecture" if record is Stack else "training"
            space = SearchSpace.from_dict({"resnas": 1, section: {name: values}})
            place = f"{section}.{name}"
        else:
            family = next(family for family in TOPOLOGIES if TOPOLOGIES[family] is record)
            required = {"window": 3} if record is WindowedDepthAttention else {}
            residual = {family: required | {name: values}}
            space = SearchSpace.from_dict({"resnas": 1, "architecture": {"residual": residual}})
            place = f"architecture.residual.{family}.{name}"
        assert list(space.parameters) == [place]
        assert list(space.parameters[place]) == values
        if field.annotation in (int, float):
            limits = {"low": values[0], "high": values[1]}
            edited = SearchSpace.from_dict(_replaced(space.to_dict(), place, limits))
            assert edited.parameters[place] == Range(values[0], values[1])
            assert type(edited.parameters[place].low) is field.annotation


def _replaced(values: dict, place: str, value: object) -> dict:
    *parts, last = place.split(".")
    inner = values
    for part in parts:
        inner = next(entry[part] for entry in inner if part in entry) if isinstance(inner, list) else inner[part]
    inner[last] = value
    return values


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        (Range(2, 5), [2, 3, 4, 5]),
        (Range(2, 9, step=3), [2, 5, 8]),
        (Range(1, 4, log=True), [1, 2, 3, 4]),
        (Range(0.1, 0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Range(0.0, 1.0, step=0.3), [0.0, 0.3, 0.6, 0.9]),
        (Choices(("rms", "none")), ["rms", "none"]),
    ],
)
def test_discrete_dimensions_list_their_values(dimension, values):
    assert list(dimension) == values
    assert dimension.count == len(values)
    assert all(dimension.find(value) == value for value in values)


@pytest.mark.parametrize(
    ("dimension", "middle"),
    [
        (Range(1e-4, 1e-2, log=True), 1e-3),
        (Range(0.0, 1.0), 0.5),
        (Range(1, 100, log=True), 10),
        (Range(4, 12, step=4), 8),
        (Range(0.1, 0.9, step=0.1), 0.5),
        (Choices(("b", "a")), "b"),
    ],
)
def test_middles(dimension, middle):
    expected = pytest.approx(middle, rel=1e-12) if isinstance(middle, float) else middle
    assert dimension.middle == expected


def test_a_value_outside_a_dimension_is_refused():
    for dimension, value in [
        (Range(2, 9, step=3), 4),
        (Range(0.0, 1.0), 1.5),
        (Range(0.0, 1.0, step=0.5), 1.5),
        (Range(0.0, 1.0, step=0.5), float("inf")),
        (Range(1, 3), True),
        (Range(1, 3), "2"),
        (Choices((1, 2)), True),
        (Choices((True, False)), 1),
        (Choices(("a", "b")), "c"),
    ]:
        with pytest.raises(ValueError, match="is not"):
            dimension.find(value)


def test_baseline_is_fixed_with_first_choices_and_middles():
    space = read(SPACE)
    baseline = space.baseline()
    assert list(baseline) == [
        "architecture.depth",
        "architecture.residual",
        "training.learning_rate",
        "training.mixing_lr_multiplier",
    ]
    architecture = space.build(baseline)
    assert architecture.residual == Fixed()
    assert (architecture.depth, architecture.training.mixing_lr_multiplier) == (6, 1.0)
    assert architecture.training.learning_rate == pytest.approx(10**-2.5)
    assert read(changed("    - fixed\n", "")).baseline() is None


def test_windows_that_see_all_collapse_in_enumerate_but_not_in_count():
    residual = [{"windowed_depth_attention": {"window": [2, 5, 9]}}, "full_depth_attention"]
    space = SearchSpace.from_dict({"resnas": 1, "architecture": {"depth": 2, "residual": residual}})
    assert space.count() == len(list(space.assignments())) == 4
    windowed, full = space.enumerate()
    assert windowed.residual == WindowedDepthAttention(window=2)
    assert full.residual == FullDepthAttention()


def test_a_continuous_space_cannot_be_listed():
    space = read(SPACE)
    assert space.count() is None
    assert space.continuous() == ["training.learning_rate"]
    with pytest.raises(InputError, match=r"training\.learning_rate: is a continuous range"):
        space.assignments()


def test_build_refuses_what_is_not_an_assignment():
    space = read(SPACE)
    good = space.baseline()
    window = "architecture.residual.windowed_depth_attention.window"
    for bad, part in [
        ({}, "architecture.depth: has no value"),
        (good | {"architecture.depth": 7}, r"architecture\.depth: 7 is not one of \[6, 12\]"),
        (good | {"training.learning_rate": 1.0}, r"training\.learning_rate: 1\.0 is not in"),
        (good | {window: 2}, f"{window}: not a parameter of this space, or not with"),
        (good | {"architecture.width": 48}, r"architecture\.width: not a parameter"),
    ]:
        with pytest.raises(InputError, match=part):
            space.build(bad)


def test_infeasible_gives_the_reason():
    space = read(changed("2e6", "1e5").replace("width: 48", "width: [48, 50]"))
    good = space.build(space.baseline())
    count = cost.parameters(good, SHAPE)
    assert space.infeasible(good, SHAPE) == f"{count:,} parameters, more than max_parameters 100,000"
    assert read(SPACE).infeasible(good, SHAPE) is None
    odd = good.model_copy(update={"width": 50})
    assert space.infeasible(odd, SHAPE) == "width 50 is not divisible by heads 4"
    flops = cost.flops(good, SHAPE)
    for limit, reason in [(flops, None), (flops - 1, f"{flops:,} FLOPs, more than max_flops {flops - 1:,}")]:
        limited = SearchSpace.from_dict({"resnas": 1, "constraints": {"max_flops": limit}})
        assert limited.infeasible(good, SHAPE) == reason


def _python(code: str, hash_seed: str = "0") -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_keys_and_order_do_not_depend_on_the_process():
    code = (
        "import random; from resnas.space import SearchSpace\n"
        "space = SearchSpace.load('search_spaces/quickstart.yaml')\n"
        "source = random.Random(3)\n"
        "print(list(space.parameters), [space.build(space.draw(source)).key for _ in range(20)])\n"
    )
    assert _python(code, "1") == _python(code, "2") != ""


def test_loading_a_space_imports_nothing_heavy_and_is_quick():
    code = (
        "import sys, time; start = time.process_time()\n"
        "from resnas.space import SearchSpace\n"
        "from resnas.study import Study\n"
        "SearchSpace.load('search_spaces/quickstart.yaml').json_schema()\n"
        "Study.load('studies/quickstart.yaml')\n"
        "heavy = {'torch', 'optuna', 'sklearn', 'lightning', 'plotly', 'pandas', 'numpy'} & set(sys.modules)\n"
        "print(sorted(heavy), time.process_time() - start)\n"
    )
    heavy, _, seconds = _python(code).strip().rpartition(" ")
    assert heavy == "[]"
    assert float(seconds) < 2  # about 0.3 s of processor time on an idle core


def test_counting_a_huge_space_is_closed_form():
    limits = {"low": 1, "high": 10**9}
    space = SearchSpace.from_dict({"resnas": 1, "architecture": {"depth": limits, "residual": list(TOPOLOGIES)[:2]}})
    start = time.perf_counter()
    assert space.count() == 2 * 10**9
    assert next(iter(space.assignments()))["architecture.depth"] == 1
    assert time.perf_counter() - start < 5
