"""Spaces, assignments and trials at random: listing, counting, drawing, building and sampling agree."""

import random
import warnings

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_space import changed, read

from resnas.space import SearchSpace


def searchable(values, constant=None):
    """A constant or a list of different choices of `values`."""
    return st.sampled_from(values) | st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)


steps = st.builds(
    lambda low, more, step: {"low": low, "high": low + more, "step": step}, *[st.integers(1, 3)] * 2, st.just(1)
)
discrete = {
    "architecture": {
        "depth": searchable([1, 2, 3]) | steps,
        "width": searchable([8, 16]),
        "heads": searchable([1, 2]),
        "mlp": searchable(["gelu", "swiglu"]),
        "mlp_ratio": searchable([2, 4.0]) | st.just({"low": 0.1, "high": 0.4, "step": 0.1}),
        "norm": searchable(["pre", "post", "sandwich"]),
    },
    "training": {"weight_decay": searchable([0, 0.1]), "warmup_share": st.just({"low": 0, "high": 1, "step": 0.5})},
}
windowed = st.fixed_dictionaries(
    {"window": searchable([1, 2, 5]) | steps},
    optional={"keep_embedding": searchable([True, False]), "old_sources": searchable(["drop", "remainder"])},
)
entries = {
    "fixed": st.sampled_from(["fixed", {"fixed": {}}]),
    "scalar_learned": st.just("scalar_learned")
    | st.builds(lambda v: {"scalar_learned": {"per_channel": v}}, searchable([True, False])),
    "windowed_depth_attention": windowed.map(lambda options: {"windowed_depth_attention": options}),
    "full_depth_attention": st.just("full_depth_attention"),
}
residuals = st.lists(st.sampled_from(list(entries)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.tuples(*(entries[name] for name in names)).map(list)
)


@st.composite
def spaces(draw, continuous=False):
    values = {"resnas": 1}
    for section, fields in discrete.items():
        values[section] = draw(st.fixed_dictionaries({}, optional=fields))
    if draw(st.booleans()):
        values["architecture"]["residual"] = draw(residuals)
    if continuous:
        values["training"]["learning_rate"] = {"low": 1e-4, "high": 1e-1, "log": True}
        values["training"]["mixing_lr_multiplier"] = {"low": 1, "high": 7}
    return SearchSpace.from_dict(values)


quick = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(spaces())
def test_count_is_the_number_of_assignments(space):
    assignments = list(space.assignments())
    assert space.count() == len(assignments)
    assert len({tuple(sorted(assignment.items(), key=str)) for assignment in assignments}) == len(assignments)
    assert all(assignment.keys() <= space.parameters.keys() for assignment in assignments)
    assert set().union(*assignments) == set(space.parameters)


@quick
@given(spaces())
def test_enumerate_yields_each_architecture_once(space):
    if space.count() > 300:
        return
    keys = [architecture.key for architecture in space.enumerate()]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {space.build(assignment).key for assignment in space.assignments()}


@quick
@given(spaces(continuous=True) | spaces(), st.integers(0, 2**31))
def test_drawing_building_and_sampling_agree(space, seed):
    assignment = space.draw(random.Random(seed))
    assert assignment == space.draw(random.Random(seed))
    architecture = space.build(assignment)
    assert architecture == space.build(assignment)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed_trial = optuna.trial.FixedTrial(assignment)
        assert space.sample(fixed_trial) == architecture
    assert fixed_trial.params == assignment
    assert set(fixed_trial.distributions) == set(assignment)


@quick
@given(spaces(continuous=True) | spaces())
def test_the_plain_form_is_read_back(space):
    assert SearchSpace.from_dict(space.to_dict()) == space


@pytest.mark.parametrize(
    "sampler", [optuna.samplers.RandomSampler(1), optuna.samplers.TPESampler(seed=1, n_startup_trials=5)]
)
def test_what_an_optuna_study_records_builds_the_same_architecture(sampler):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    text = changed("width: 48", "width: {low: 16, high: 50, step: 16}").replace(
        "constraints",
        "  weight_decay: {low: 0, high: 1, step: 0.1}\n  warmup_share: {low: 0.1, high: 0.5}\nconstraints",
    )
    space = read(text)
    study = optuna.create_study(sampler=sampler)
    families = set()
    for _ in range(25):
        trial = study.ask()
        architecture = space.sample(trial)
        families.add(architecture.family)
        assert space.build(trial.params).key == architecture.key
        study.tell(trial, architecture.depth)
    assert len(families) > 2


def test_random_draws_reach_every_value():
    values = {
        "architecture": {"depth": {"low": 1, "high": 4, "log": True}, "residual": ["fixed", "full_depth_attention"]},
        "training": {"weight_decay": {"low": 0, "high": 0.3, "step": 0.1}},
    }
    space = SearchSpace.from_dict({"resnas": 1} | values)
    source = random.Random(0)
    assignments = [space.draw(source) for _ in range(600)]
    assert all(assignment in list(space.assignments()) for assignment in assignments[:100])
    drawn = {space.build(assignment).key for assignment in assignments}
    assert drawn == {architecture.key for architecture in space.enumerate()}
    assert len(drawn) == 4 * 2 * 4
