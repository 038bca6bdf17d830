"""What is compared with what, decided before anything is run: the claims' pairs, and the best against two others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from resnas.architecture import Architecture
from resnas.comparison import BASELINE_FAMILY, Trained, comparable, trained
from resnas.confirm.change import Change, Material, NotTestable, find_change
from resnas.confirm.claims import Claim, leading_claims, named_claim, rescaled, share_of_change, shown
from resnas.confirm.matching import Matched, Quantity, matched, reached
from resnas.errors import InputError
from resnas.ranking import Ranking
from resnas.results import Direction, Recorded, RecordedTrial, table
from resnas.study import Study, known_metrics

BESIDE = ("val_loss", "dilution", "effective_depth")
"""Metrics that stand beside the target: each of them alone can be gamed."""
TEST, VALIDATION = "test_", "val_"
TEST_LOSS = "test_loss"
RANDOM = "random"


@dataclass(frozen=True)
class Pair:
    """Two architectures whose runs are compared seed by seed."""

    name: str
    kind: Literal["claim", "best"]
    base: Architecture
    changed: Architecture
    metrics: Mapping[str, Direction]
    """What is compared; the first decides."""
    claim: Claim | None = None
    change: Change | None = None
    matched: Matched | None = None

    @property
    def target(self) -> str:
        """The metric that decides."""
        return next(iter(self.metrics))

    @property
    def is_tuned(self) -> bool:
        """Whether each arm gets a learning rate of its own; not where that is what is compared."""
        return self.change is None or self.change.option != "training.learning_rate"


@dataclass(frozen=True)
class Plan:
    """The pairs to compare, and what cannot be compared and why."""

    pairs: Sequence[Pair]
    remarks: Sequence[str]

    def of(self, kind: str) -> list[Pair]:
        """Return the pairs of a kind: they are judged together."""
        return [pair for pair in self.pairs if pair.kind == kind]


def make_plan(
    study: Study,
    trials: Sequence[RecordedTrial],
    rankings: Sequence[Ranking],
    named: Sequence[str],
    top: int,
    match: Quantity | None,
    best: bool,
) -> Plan:
    """Return what to compare.

    Args:
        study: whose trials.
        trials: of the study.
        rankings: of its properties, one for each target of claims.
        named: the claims that the user names, to be tested for each target; none for the leading ones of each ranking.
        top: leading claims of each ranking at most.
        match: what the two arms of a claim must have equal.
        best: compare the best architecture with others as well.

    Raises:
        InputError: a claim that the user names cannot be tested, or the study has no complete trial.
    """
    rows = comparable(table(trials))
    architectures = {one.key: one for one in (Architecture(**found) for found in _architectures(trials))}
    ordered = trained(rows, study.directions, study.limits)
    if not ordered:
        raise InputError(f"the study {study.name!r} has no complete trial to compare anything with")
    material = Material([architectures[one.key] for one in ordered], study.search_space, study.task.shape())
    directions = known_metrics(study.task)
    pairs: list[Pair] = []
    remarks: list[str] = []
    for ranking in rankings:
        better = directions[ranking.target]
        if named:
            claims = [named_claim(one, ranking, rows, better) for one in named]
            pairs += [_pair_of_named(claim, material, match, directions) for claim in claims]
        else:
            claims = leading_claims(ranking, rows, better, top)
            found, missing = _pairs_of_leading(claims, material, match, directions)
            pairs, remarks = pairs + found, remarks + (missing if claims else [_no_claims(ranking)])
    if best:
        found, missing = _best_pairs(ordered, architectures, study)
        pairs, remarks = pairs + found, remarks + missing
    return Plan(pairs, remarks)


def _architectures(trials: Sequence[RecordedTrial]) -> list[dict[str, Any]]:
    return [values for trial in trials if (values := Recorded.of(trial).architecture) is not None]


def _no_claims(ranking: Ranking) -> str:
    """Say why there is no claim to test."""
    return f"The ranking claims nothing to test: {ranking.sentence()} Name a claim with --claim PROPERTY=LOW..HIGH."


def _pair_of_named(
    claim: Claim, material: Material, match: Quantity | None, directions: Mapping[str, Direction]
) -> Pair:
    """Return the pair that tests a claim of the user. Raises InputError."""
    try:
        return _pair_of(claim, material, match, directions)
    except NotTestable as reason:
        change = f"{claim.subject}={shown(claim.before)}..{shown(claim.after)}"
        raise InputError(f"--claim {change}: {reason}") from None


def _pairs_of_leading(
    claims: Sequence[Claim], material: Material, match: Quantity | None, directions: Mapping[str, Direction]
) -> tuple[list[Pair], list[str]]:
    """Return the pairs that test a ranking's claims, and why others are not tested."""
    pairs, missing = [], []
    for claim in claims:
        try:
            pairs.append(_pair_of(claim, material, match, directions))
        except NotTestable as reason:
            missing.append(f"Not tested: {reason}.")
    return pairs, missing


def _pair_of(claim: Claim, material: Material, match: Quantity | None, directions: Mapping[str, Direction]) -> Pair:
    """Return the pair that tests a claim. Raises NotTestable."""
    change = find_change(claim, material)
    share = share_of_change(claim, change.before, change.after)
    if share is not None:  # the values that the study's space has may be others than the claimed ones
        claim = rescaled(claim, change.before, change.after, share)
    changed, equal = change.changed, None
    if match is not None:
        changed = matched(change.base, changed, material.shape, match)
        equal = reached(change.base, changed, material.shape, match)
    names = dict.fromkeys([claim.target, *BESIDE])
    return Pair(
        claim.name, "claim", change.base, changed, {name: directions[name] for name in names}, claim, change, equal
    )


def _best_pairs(
    ordered: Sequence[Trained], architectures: Mapping[str, Architecture], study: Study
) -> tuple[list[Pair], list[str]]:
    """Return the best against the best `fixed` and the best random draw, and why one of them is missing."""
    best = ordered[0]
    others = {
        "the best fixed architecture": next((one for one in ordered if one.family == BASELINE_FAMILY), None),
        "the best of the random draws": next(
            (one for one in ordered if any(row["origin"] == RANDOM for row in one.rows)), None
        ),
    }
    metrics: dict[str, Direction] = {TEST_LOSS: "minimize"}
    metrics |= {
        f"{TEST}{name.removeprefix(VALIDATION)}": direction for name, direction in study.task.metric_directions.items()
    }
    pairs, missing = [], []
    for what, other in others.items():
        if other is None:
            missing.append(
                f"The study has not trained {what.removeprefix('the best ')}; the best is not compared with it."
            )
        elif other.key == best.key:
            missing.append(f"The study's best architecture is itself {what}.")
        else:
            name = f"the study's best instead of {what}"
            pairs.append(Pair(name, "best", architectures[other.key], architectures[best.key], metrics))
    return pairs, missing
