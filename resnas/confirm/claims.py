"""Claims: which change of which property is said to move the target, which way and by how much.

They come from a ranking, or from the user, whose claim has a direction and a size only where the ranking gives them.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from resnas.architecture import PROPERTIES
from resnas.comparison import finite, sign
from resnas.confirm.verdict import Direction
from resnas.errors import InputError
from resnas.problems import unknown
from resnas.ranking import CONSTANT, SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking
from resnas.ranking.effects import NO_DIRECTION
from resnas.residual.topology import Scalar
from resnas.results import Direction as Better
from resnas.yaml_file import parse_yaml

TAIL = 0.1
"""Share of the values at either end that a change between numbers leaves out."""
FAMILY = "family"
DOES_NOT_APPLY = "does not apply"
OPPOSITE: dict[Direction, Direction] = {-1: 1, 0: 0, 1: -1}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A change of one property that is said to move the target."""

    subject: str
    """Name of the property."""
    before: Scalar
    after: Scalar
    """None where the property does not apply."""
    target: str
    direction: Direction
    effect: float | None = None
    """Claimed difference of the target (after − before), with its 90 % interval, in units of the target."""
    effect_low: float | None = None
    effect_high: float | None = None
    ranking_verdict: str = "not ranked"
    together_with: tuple[str, ...] = ()
    """Properties that the ranking could not tell apart from this one."""
    depends_on: tuple[str, ...] = ()
    """Properties that its effect depends on, by the ranking's interactions: elsewhere it may be another."""

    @property
    def name(self) -> str:
        """The change in words, which is also what looks at it are counted by."""
        return f"{self.subject}: {shown(self.after)} instead of {shown(self.before)}"


def shown(value: Scalar) -> str:
    """Write the value of a property for people."""
    if value is None:
        return DOES_NOT_APPLY
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def leading_claims(ranking: Ranking, rows: Sequence[Row], better: Better, most: int) -> list[Claim]:
    """Return the claims of a ranking: supported ones, then suggestive ones, one for each group that it moved together.

    Args:
        ranking: of the properties for one target.
        rows: of the trials that were ranked.
        better: which way of the target is better; a change between names is told towards the better one.
        most: claims at most.
    """
    effects = ranking.moved_together() if ranking.reliable else []
    ordered = [one for verdict in (SUPPORTED, SUGGESTIVE) for one in effects if one.verdict == verdict]
    return [_claim_of(_settable(one, ranking), ranking, rows, better) for one in ordered[:most]]


def named_claim(text: str, ranking: Ranking, rows: Sequence[Row], better: Better) -> Claim:
    """Return the claim that `PROPERTY` or `PROPERTY=LOW..HIGH` names.

    Raises:
        InputError: the property is unknown, its values are no pair, or it has one value in the study.
    """
    name, given, values = (part.strip() for part in text.partition("="))
    known = list(dict.fromkeys([*PROPERTIES, *(effect.name for effect in ranking.effects)]))
    if name not in known:
        raise InputError(f"--claim: {unknown(name, known, 'property')}")
    effect = next((one for one in ranking.effects if one.name == name and one.verdict != CONSTANT), None)
    if not given:
        if effect is None:
            raise InputError(
                f"--claim {name}: has one value in this study; give two to compare, --claim {name}=LOW..HIGH"
            )
        return _claim_of(effect, ranking, rows, better)
    before, after = _pair(name, values)
    claimed = None if effect is None else _claim_of(effect, ranking, rows, better)
    return _between(before, after, name, ranking.target, claimed)


def _pair(name: str, values: str) -> tuple[Scalar, Scalar]:
    """Return the two values of `LOW..HIGH`, read as YAML reads them."""
    parts = [part.strip() for part in values.split("..")]
    if len(parts) != 2 or not all(parts):
        raise InputError(
            f"--claim {name}={values}: must be {name}=LOW..HIGH, the two values of the property to compare"
        )
    read = []
    for part in parts:
        value = None if part == DOES_NOT_APPLY else parse_yaml(f"value: {part}", f"--claim {name}").values["value"]
        if isinstance(value, list | dict):
            raise InputError(f"--claim {name}={values}: {part} must be a number, true, false or a name")
        read.append(value)
    if read[0] == read[1]:
        raise InputError(f"--claim {name}={values}: the two values must differ")
    return read[0], read[1]


def _between(before: Scalar, after: Scalar, name: str, target: str, claimed: Claim | None) -> Claim:
    """Return a claim about the user's values, with direction and size of the ranking's claim as far as it speaks of
    them: for numbers in proportion to the change, for others only where the values are the same."""
    if claimed is None:
        return Claim(name, before, after, target, 0)
    share = share_of_change(claimed, before, after)
    if share is None:
        return replace(claimed, before=before, after=after, direction=0, effect=None, effect_low=None, effect_high=None)
    return rescaled(claimed, before, after, share)


def share_of_change(claimed: Claim, before: Scalar, after: Scalar) -> float | None:
    """Return which share of a claimed change another change is, −1 to 1; None where they cannot be compared."""
    low, high = claimed.before, claimed.after
    if is_number(low) and is_number(high) and is_number(before) and is_number(after):
        return max(-1.0, min(1.0, (after - before) / (high - low))) or None
    return 1.0 if (low, high) == (before, after) else -1.0 if (low, high) == (after, before) else None


def rescaled(claimed: Claim, before: Scalar, after: Scalar, share: float) -> Claim:
    """Return the claim about a change that is a share of the claimed one."""
    effect, *ends = (
        None if value is None else share * value for value in (claimed.effect, claimed.effect_low, claimed.effect_high)
    )
    low, high = ends if share > 0 else ends[::-1]
    direction = claimed.direction if share > 0 else OPPOSITE[claimed.direction]
    return replace(
        claimed, before=before, after=after, direction=direction, effect=effect, effect_low=low, effect_high=high
    )


def _settable(effect: PropertyEffect, ranking: Ranking) -> PropertyEffect:
    """Return that property of a group moved together which an option sets by itself; the first one where none is."""
    by_name = {other.name: other for other in ranking.effects}
    group = [effect.name, *effect.correlated_with]
    order = [effect.name, FAMILY, *effect.correlated_with]
    return by_name[next((name for name in order if name in group and not is_derived(name)), effect.name)]


def is_derived(name: str) -> bool:
    """Whether a property follows from several options, and has none of its own."""
    option = PROPERTIES[name].option if name in PROPERTIES else "architecture.residual"
    return "," in option or (option == "architecture.residual" and name != FAMILY)


def _claim_of(effect: PropertyEffect, ranking: Ranking, rows: Sequence[Row], better: Better) -> Claim:
    """Return what a ranking claims about one property."""
    values = [row.get(effect.name) for row in rows]
    given = [value for value in values if value is not None]
    low, high = effect.effect_low or 0.0, effect.effect_high or 0.0
    is_clear = effect.direction != NO_DIRECTION and not low <= 0 <= high
    is_numeric = all(is_number(value) for value in given) and len(set(given)) > 1
    is_name = not is_numeric and set(values) != {False, True}
    before, after = _ends(given) if is_numeric else (False, True)
    if is_name:
        before, after = _levels(effect, rows, ranking.target)
    claimed = Claim(
        effect.name,
        before,
        after,
        ranking.target,
        0 if not is_clear else 1 if low > 0 else -1,
        *((effect.effect, effect.effect_low, effect.effect_high) if is_clear else (None, None, None)),
        effect.verdict,
        effect.correlated_with,
        _depends_on(effect, ranking),
    )
    return rescaled(claimed, after, before, -1.0) if is_name and sign(better) > 0 else claimed


def _depends_on(effect: PropertyEffect, ranking: Ranking) -> tuple[str, ...]:
    """Return the properties that the ranking found, or suspects, to act on the effect of this one."""
    names = {effect.name, *effect.correlated_with}
    return tuple(
        other
        for pair in ranking.interactions
        if pair.verdict in (SUPPORTED, SUGGESTIVE)
        for one, other in ((pair.one, pair.other), (pair.other, pair.one))
        if one in names
    )


def _ends(values: Sequence[Any]) -> tuple[Scalar, Scalar]:
    """Return the values at the lower and the upper tenth, by rank: the middles of the fifths that the ranking compares;
    lowest and highest where these are equal."""
    ordered = sorted(values)
    last = len(ordered) - 1
    low, high = ordered[math.floor(TAIL * last)], ordered[math.ceil((1 - TAIL) * last)]
    return (low, high) if low != high else (ordered[0], ordered[-1])


def _levels(effect: PropertyEffect, rows: Sequence[Row], target: str) -> tuple[Scalar, Scalar]:
    """Return the names that the ranking compares, that with the lowest target first; where it compares none, those
    with the lowest and the highest mean."""
    groups: defaultdict[Scalar, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.get(effect.name)] += finite([row.get(target)])
    means = {value: statistics.fmean(found) for value, found in groups.items() if found}
    if (named := effect.extremes()) is not None:
        by_name = {_as_level(value): value for value in means}
        return by_name[named[0]], by_name[named[1]]
    return min(means, key=means.__getitem__), max(means, key=means.__getitem__)


def _as_level(value: Scalar) -> str:
    """Write a value as the ranking names a level."""
    return DOES_NOT_APPLY if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value of a property is a number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)
