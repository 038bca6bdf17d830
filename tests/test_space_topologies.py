"""Topologies of a user's own, named by dotted path, are searched like those that resnas knows."""

from typing import Annotated

import pytest
from pydantic import Field, model_validator
from test_space import SHAPE, changed, read

from resnas import cost
from resnas.errors import InputError
from resnas.residual import Topology
from resnas.space import Choices, SearchSpace


class NearestOnly(Topology):
    """A topology of a user, with nothing but options."""

    sharpness: float = 1.0
    """How sharp."""
    limit: Annotated[int | None, Field(ge=2)] = None
    """How many, or null."""


class Picky(Topology):
    """A topology that refuses some combinations of options that are each right."""

    first: int = 1
    second: int = 1

    @model_validator(mode="after")
    def _ordered(self):
        if self.first > self.second:
            raise ValueError("first must not exceed second")
        return self


def test_a_topology_by_dotted_path_is_searched_like_any_other():
    name = f"{__name__}:NearestOnly"
    space = read(changed("- fixed\n", f"- fixed\n    - {name}: {{sharpness: [1, 2]}}\n"))
    assert space.parameters[f"architecture.residual.{name}.sharpness"] == Choices((1.0, 2.0))
    assignment = space.baseline() | {"architecture.residual": name, f"architecture.residual.{name}.sharpness": 2.0}
    architecture = space.build(assignment)
    assert architecture.residual == NearestOnly(sharpness=2.0)
    assert space.infeasible(architecture, SHAPE) is None
    plain = space.build(space.baseline())
    assert cost.parameters(architecture, SHAPE) == cost.parameters(plain, SHAPE)
    assert SearchSpace.from_dict(space.to_dict()) == space


def test_an_option_that_may_be_null_has_a_range_of_numbers():
    residual = {f"{__name__}:NearestOnly": {"limit": {"low": 2, "high": 4}}}
    space = SearchSpace.from_dict({"resnas": 1, "architecture": {"residual": residual}})
    assert [architecture.residual.limit for architecture in space.enumerate()] == [2, 3, 4]
    for limit, part in [
        ({"low": 1, "high": 4}, "of at least 2, not 1"),
        ({"low": None, "high": 4}, "not null"),
        (1, "not 1"),
    ]:
        residual[f"{__name__}:NearestOnly"]["limit"] = limit
        with pytest.raises(InputError, match=part):
            SearchSpace.from_dict({"resnas": 1, "architecture": {"residual": residual}})
    residual[f"{__name__}:NearestOnly"]["limit"] = [None, 3]
    space = SearchSpace.from_dict({"resnas": 1, "architecture": {"residual": residual}})
    assert [architecture.residual.limit for architecture in space.enumerate()] == [None, 3]


def test_options_that_a_topology_refuses_together_are_named():
    space = read(f"resnas: 1\narchitecture:\n  residual: {{'{__name__}:Picky': {{first: [1, 2]}}}}\n")
    name = f"architecture.residual.{__name__}:Picky"
    assert space.build({f"{name}.first": 1}).residual == Picky()
    with pytest.raises(InputError, match=f"{name}: .*first must not exceed second"):
        space.build({f"{name}.first": 2})


def test_the_same_class_by_two_names_is_one_variant():
    with pytest.raises(InputError, match="given twice"):
        read(changed("- fixed\n", "- fixed\n    - resnas.residual:Fixed\n"))
