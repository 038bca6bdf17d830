"""Where lowering dilution did and did not lower the loss: their rank correlation within families and depths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from resnas.comparison import Trained, sign
from resnas.evidence import FEWEST_FOR_INTERVAL, Correlation, rank_correlation
from resnas.report.material import Material
from resnas.report.words import counted, joined, number
from resnas.results import Direction
from resnas.study import derive_seed

GOES_WITH_BETTER, GOES_WITH_WORSE = "better", "worse"
NOT_CLEAR, TOO_FEW = "not clear", "too few"


class Association(NamedTuple):
    """The rank correlation of dilution with a metric over the architectures of one family.

    `depth` is None for all depths of the family together, with ranks taken within each depth.
    """

    family: str
    depth: int | None
    correlation: Correlation
    finding: str
    seed: int
    """Of the bootstrap."""


def associations(material: Material, name: str, direction: Direction) -> list[Association]:
    """Return the association within each family and depth; that over all depths of a family comes first."""
    seed = derive_seed(material.study.search.seed, "report association", name)
    known = [one for one in material.architectures if one.values("dilution") and math.isfinite(one.mean(name))]
    found = []
    for family in material.families:
        own = [one for one in known if one.family == family]
        depths = sorted({one.depth for one in own})
        for depth in [None, *depths] if len(depths) > 1 else depths:
            chosen = [one for one in own if depth in (None, one.depth)]
            correlation = _correlation(chosen, name, seed)
            found.append(Association(family, depth, correlation, _finding(correlation, direction), seed))
    return found


def _correlation(architectures: Sequence[Trained], name: str, seed: int) -> Correlation:
    return rank_correlation(
        [one.mean("dilution") for one in architectures],
        [one.mean(name) for one in architectures],
        [one.depth for one in architectures],
        seed=seed,
    )


def _finding(correlation: Correlation, direction: Direction) -> str:
    if correlation.value is None or correlation.low is None:
        return TOO_FEW
    if not correlation.is_clear:
        return NOT_CLEAR
    return GOES_WITH_BETTER if correlation.value * sign(direction) > 0 else GOES_WITH_WORSE


def sentences(found: Sequence[Association], name: str) -> list[str]:
    """Return one sentence per family: where less dilution went with a better metric, and where it did not."""
    return [_sentence(family, [one for one in found if one.family == family], name) for family in _families(found)]


def _families(found: Sequence[Association]) -> list[str]:
    return list(dict.fromkeys(one.family for one in found))


def _sentence(family: str, found: Sequence[Association], name: str) -> str:
    whole = found[0]
    where = "within its depths" if whole.depth is None else f"at depth {whole.depth}"
    if whole.finding == TOO_FEW:
        return (
            f"{family}: too few architectures {where} to tell ({whole.correlation.n}; {FEWEST_FOR_INTERVAL} give an "
            "interval)."
        )
    low, high = number(whole.correlation.low, 2), number(whole.correlation.high, 2)
    size = f"ρ {number(whole.correlation.value, 2)}, 90 % interval {low} to {high}"
    over = f"over {counted(whole.correlation.n, 'architecture')} {where} ({size})"
    says = {
        GOES_WITH_BETTER: f"{family}: less dilution went with a better {name} {over}",
        GOES_WITH_WORSE: f"{family}: less dilution went with a worse {name} {over}",
        NOT_CLEAR: f"{family}: less dilution went with neither a better nor a worse {name} clearly {over}",
    }
    exceptions = [
        f"at depth {one.depth} {'with a better' if one.finding == GOES_WITH_BETTER else 'with a worse'} one"
        for one in found[1:]
        if one.finding in (GOES_WITH_BETTER, GOES_WITH_WORSE) and one.finding != whole.finding
    ]
    return says[whole.finding] + (f"; but {joined(exceptions)}" if exceptions else "") + "."
