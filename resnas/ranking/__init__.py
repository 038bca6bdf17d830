"""Which properties of an architecture move a metric, by how much, and how sure is that: `rank(table, …) -> Ranking`.

The door to scikit-learn. `columns` turns properties into numbers, `surrogate` fits and tests on held-out architectures,
`effects` says direction and size, `inference` holds intervals, nulls and the gate, `protocol` runs them in order,
`result` is what comes out.
"""

from resnas.ranking.protocol import rank
from resnas.ranking.result import CONSTANT, NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking

__all__ = ["CONSTANT", "NOT_SEPARABLE", "SUGGESTIVE", "SUPPORTED", "PropertyEffect", "Ranking", "rank"]
