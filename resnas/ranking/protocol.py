"""The ranking from table to verdicts, step by step.

Rows without a finite target go; properties become numbers; the evidence is measured; the gate decides whether there is
a ranking at all; each property gets a verdict no stronger than the gate allows. What such a ranking must not claim:
Lindauer & Hutter, JMLR 21(243), 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas

from resnas.errors import InputError, nearest
from resnas.ranking import inference
from resnas.ranking.columns import Encoded, Property, encode, encode_property
from resnas.ranking.effects import NO_DIRECTION, direction
from resnas.ranking.evidence import Effort, Evidence, Progress, Study, gather, r2_of_half
from resnas.ranking.result import CONSTANT, NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, PropertyEffect, Ranking
from resnas.ranking.surrogate import Vector


def rank(
    table: pandas.DataFrame,
    properties: Sequence[str],
    target: str,
    *,
    group: str = "key",
    seed: int,
    minimum_trials: int = 40,
    folds: int = 5,
    repeats: int = 3,
    bootstraps: int = 50,
    shuffles: int = 100,
    progress: Progress | None = None,
) -> Ranking:
    """Rank properties by what they do to the target, or say why that is not possible yet.

    Args:
        table: One row per completed trial.
        properties: Columns with numbers, booleans or texts; missing where a property does not apply.
        target: Column with the metric.
        group: Column with the architecture's key; replicates share it and never straddle folds.
        seed: Of everything random; the same seed gives the same ranking.
        minimum_trials: Fewer than this give no reliable ranking.
        folds: Of the cross-validation; at least twice as many architectures are needed.
        repeats: Of the cross-validation, with new folds.
        bootstraps: Studies drawn anew, each with refits, for the intervals.
        shuffles: Shuffled targets for the p-values; with fewer than 20 no p-value gets below 0.05.
        progress: Called with the step and the share of the whole work that is done.

    Raises:
        InputError: a column is missing or named twice, the target is not numeric, or a group or property value unfit.
        ValueError: fewer than two folds, or less than one repeat, bootstrap or shuffle.
    """
    effort = _checked_effort(Effort(folds, repeats, bootstraps, shuffles))
    _check_columns(table, properties, target, group)
    every_target = _numeric_target(table[target])
    usable = np.isfinite(every_target)
    rows = table.loc[usable].reset_index(drop=True)
    groups = pandas.factorize(rows[group])[0].astype(np.intp)
    encoded, constant = encode([encode_property(rows[name]) for name in properties])
    study = Study(encoded, every_target[usable], groups, seed)
    evidence = gather(study, effort, progress) if _measurable(study, folds) else None
    refusal = _refusal(study, evidence, target, minimum_trials, folds)
    effects = [
        _effect(position, encoded, evidence, target, refusal is None) for position in range(len(encoded.properties))
    ]
    effects += [_constant(one) for one in constant]
    return Ranking(
        target=target,
        seed=seed,
        n_trials=len(rows),
        n_architectures=len(np.unique(groups)),
        n_excluded=int((~usable).sum()),
        r2=evidence.result.r2() if evidence else None,
        r2_low=evidence.r2_bounds[0] if evidence else None,
        r2_high=evidence.r2_bounds[1] if evidence else None,
        p_value=evidence.r2_p_value() if evidence else None,
        noise_ceiling=inference.noise_ceiling(study.target, groups),
        reliable=refusal is None,
        refusal=refusal,
        effects=tuple(sorted(effects, key=_order)),
    )


def _checked_effort(effort: Effort) -> Effort:
    if effort.folds < 2 or min(effort) < 1:
        raise ValueError(f"a ranking needs at least 2 folds and 1 repeat, bootstrap and shuffle; given: {effort}")
    return effort


def _check_columns(table: pandas.DataFrame, properties: Sequence[str], target: str, group: str) -> None:
    named = [*properties, target, group]
    for name in named:
        if name not in table.columns:
            raise InputError(f"the table of trials has no column {name!r}{nearest(name, map(str, table.columns))}")
        if named.count(name) > 1:
            raise InputError(f"{name!r} is named twice among properties, target and group; each column has one part")
    if table[group].isna().any():
        raise InputError(f"column {group!r} is empty in row {int(table[group].isna().argmax())}; each trial needs one")


def _numeric_target(series: pandas.Series) -> Vector:
    try:
        return np.asarray(pandas.to_numeric(series).to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise InputError(f"target {series.name!r} must hold numbers: {error}") from error


def _measurable(study: Study, folds: int) -> bool:
    """Whether there are enough architectures to fold, a property that varies, and a target that does."""
    enough = len(np.unique(study.groups)) >= 2 * folds
    return enough and bool(study.encoded.properties) and bool(np.ptp(study.target) > 0)


def _refusal(study: Study, evidence: Evidence | None, target: str, minimum_trials: int, folds: int) -> str | None:
    """Return the sentence of the gate: counts first, then what varies, then quality; None where all is passed."""
    trials, architectures = len(study.target), len(np.unique(study.groups))
    refusal = inference.refusal_of_counts(trials, architectures, minimum_trials, 2 * folds)
    if refusal is not None:
        return refusal
    if not study.encoded.properties:
        return "no reliable ranking: no property varied between the trials"
    if evidence is None:
        return f"no reliable ranking: {target} is the same in all {trials} trials"
    r2, more = evidence.result.r2(), None
    if r2 < inference.SMALLEST_R2:
        more = inference.trials_for_r2(trials, r2, r2_of_half(study, folds))
    return inference.refusal_of_quality(r2, evidence.r2_bounds, evidence.r2_p_value(), trials, more)


def _effect(position: int, encoded: Encoded, evidence: Evidence | None, target: str, reliable: bool) -> PropertyEffect:
    """Put together what is known about one property."""
    one = encoded.properties[position]
    number, unit = next((n, unit) for n, unit in enumerate(encoded.units) if position in unit.members)
    partners = tuple(encoded.properties[other].name for other in unit.members if other != position)
    options = tuple(encoded.properties[other].name for other in encoded.options[position])
    n = int(one.applies.sum())
    if evidence is None:
        nothing = (None,) * 6
        return PropertyEffect(one.name, *nothing, "not measured", None, NOT_SEPARABLE, n, partners, options)
    importance = evidence.result.importance()
    lows, highs = inference.shifted_interval(importance, evidence.importance_draws)
    effect_lows, effect_highs = inference.shifted_interval(evidence.effects, evidence.effect_draws)
    p_value = float(inference.step_down(importance, evidence.null_importance)[number])
    low, high = float(effect_lows[position]), float(effect_highs[position])
    verdict = _verdict(reliable, p_value, float(importance[number]), float(lows[number]))
    way = direction(one, evidence.grid.levels[position].names, evidence.pairs[position], low, high, target)
    return PropertyEffect(
        name=one.name,
        importance=float(importance[number]),
        importance_low=float(lows[number]),
        importance_high=float(highs[number]),
        effect=float(evidence.effects[position]),
        effect_low=low,
        effect_high=high,
        direction=NO_DIRECTION if verdict == NOT_SEPARABLE else way,
        p_value=p_value,
        verdict=verdict,
        n=n,
        correlated_with=partners,
        options=options,
    )


def _verdict(reliable: bool, p_value: float, importance: float, low: float) -> str:
    """Supported: beats the corrected null, and its interval lies above 0. Suggestive: p < 0.2 and importance > 0."""
    if not reliable or importance <= 0 or p_value >= inference.LARGEST_SUGGESTIVE_P:
        return NOT_SEPARABLE
    return SUPPORTED if p_value < inference.LARGEST_P and low > 0 else SUGGESTIVE


def _constant(one: Property) -> PropertyEffect:
    n = int(one.applies.sum())
    return PropertyEffect(one.name, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "not varied", None, CONSTANT, n)


def _order(effect: PropertyEffect) -> tuple[bool, float]:
    """Most important first, constant ones last; the order given where equal."""
    return effect.verdict == CONSTANT, -(effect.importance or 0.0)
