"""The search space: a YAML file of constants, choices and ranges over every field of an architecture."""

from resnas.space.dimensions import Choices, Dimension, Range, TrialLike, Value
from resnas.space.single import changed, load_architecture, plain
from resnas.space.space import Constraints, SearchSpace, Variant

__all__ = [
    "Choices",
    "Constraints",
    "Dimension",
    "Range",
    "SearchSpace",
    "TrialLike",
    "Value",
    "Variant",
    "changed",
    "load_architecture",
    "plain",
]
