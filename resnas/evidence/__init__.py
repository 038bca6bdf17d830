"""Statistics of a report that need no model: intervals, rank correlations, and what random search would have found.

Plain numbers in, plain numbers out; each function says its definition, and tests hold it against that.
"""

from resnas.evidence.intervals import CONFIDENCE, Interval, difference_interval, mean_interval, share_interval
from resnas.evidence.random_search import BestOf, best_of_random
from resnas.evidence.rank_correlation import FEWEST_FOR_INTERVAL, Correlation, rank_correlation

__all__ = [
    "CONFIDENCE",
    "FEWEST_FOR_INTERVAL",
    "BestOf",
    "Correlation",
    "Interval",
    "best_of_random",
    "difference_interval",
    "mean_interval",
    "rank_correlation",
    "share_interval",
]
