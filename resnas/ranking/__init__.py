"""Which properties of an architecture move a metric, by how much, and how sure is that: `rank(table, …) -> Ranking`.

The door to scikit-learn. `columns` turns properties into numbers and `design` into the features of a linear surrogate,
`ridge` fits that and tests it on held-out architectures, `trees` is a second opinion, `nulls` says what chance alone
gives, `effects` direction and size, `interactions` what depends on what, `inference` holds intervals, p-values and the
gate, `evidence` measures all of it in order, `verdicts` judges, `protocol` is the whole, `result` what comes out, and
`self_test` runs it on studies whose truth is known.
"""

from resnas.ranking.evidence import LEADERS
from resnas.ranking.protocol import rank
from resnas.ranking.result import (
    CONSTANT,
    NOT_SEPARABLE,
    SUGGESTIVE,
    SUPPORTED,
    Check,
    Interaction,
    LevelMean,
    PropertyEffect,
    Ranking,
)

__all__ = [
    "CONSTANT",
    "LEADERS",
    "NOT_SEPARABLE",
    "SUGGESTIVE",
    "SUPPORTED",
    "Check",
    "Interaction",
    "LevelMean",
    "PropertyEffect",
    "Ranking",
    "rank",
]
