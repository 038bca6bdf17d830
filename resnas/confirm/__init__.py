"""Confirming what a ranking claims, by controlled runs in pairs: the same architecture with and without one change.

`claims` says what is claimed, `change` which two architectures test it, `matching` makes them equally large, `plan`
puts together what is compared, `tuning` chooses learning rates, `experiment` runs and judges, `paired` and `verdict`
are the statistics, `looks` counts looks, `words` and `keeping` say and write what came out.
"""

from resnas.confirm.change import NotTestable
from resnas.confirm.experiment import Findings, Outcome, carry_out
from resnas.confirm.keeping import keep, metric_rows
from resnas.confirm.plan import Plan, make_plan
from resnas.confirm.words import remarks, sentence

__all__ = [
    "Findings",
    "NotTestable",
    "Outcome",
    "Plan",
    "carry_out",
    "keep",
    "make_plan",
    "metric_rows",
    "remarks",
    "sentence",
]
