"""The ranking from table to verdicts, step by step.

Rows without a finite target go; the trials of one architecture become one row; properties become numbers; the gate
decides by number, held-out R² and shuffled targets whether there is a ranking at all; only then are properties judged,
and each gets a verdict. What such a ranking must not claim: Lindauer & Hutter, JMLR 21(243), 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas
import sklearn
from numpy.typing import NDArray

from resnas.errors import InputError, nearest
from resnas.ranking import inference
from resnas.ranking.columns import Property, encode, encode_property
from resnas.ranking.effects import levels_of
from resnas.ranking.evidence import Effort, Progress, Quality, Study, assess, gather, make_designs, r2_of_half
from resnas.ranking.result import CONSTANT, PropertyEffect, Ranking
from resnas.ranking.verdicts import judge, judge_interactions

RANDOM = "random"
ORIGIN = "origin"
"""Column that says how an architecture came into the study."""


def rank(
    table: pandas.DataFrame,
    properties: Sequence[str],
    target: str,
    *,
    group: str = "key",
    seed: int,
    minimum_trials: int = 40,
    minimum_architectures: int = 30,
    folds: int = 5,
    repeats: int = 3,
    bootstraps: int = 100,
    shuffles: int = 400,
    progress: Progress | None = None,
) -> Ranking:
    """Rank properties by what they do to the target, or say why that is not possible yet.

    Args:
        table: One row per completed trial; a column `origin` tells the random ones.
        properties: Columns with numbers, booleans or texts; missing where a property does not apply.
        target: Column with the metric.
        group: Column with the architecture's key; the trials that share it are averaged.
        seed: Of everything random; the same seed gives the same ranking.
        minimum_trials: Fewer than this give no reliable ranking.
        minimum_architectures: Nor do fewer architectures than this.
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
    say = progress or _silent
    _check_columns(table, properties, target, group)
    every_target = _numeric_target(table[target])
    usable = np.isfinite(every_target)
    trials = table.loc[usable].reset_index(drop=True)
    groups = pandas.factorize(trials[group])[0].astype(np.intp)
    study, constant, outliers = _study(trials, groups, every_target[usable], properties, seed)
    least = (minimum_trials, max(minimum_architectures, 2 * folds))
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # thousands of small fits
        quality = assess(study, effort, say) if _measurable(study, folds) else None
        refusal = _refusal(study, quality, target, len(trials), least, folds)
        evidence = gather(study, quality, effort, say) if quality and refusal is None else None
    say("done", 1.0)
    effects = judge(study, quality, evidence, target) + [_constant(one) for one in constant]
    return Ranking(
        target=target,
        seed=seed,
        n_trials=len(trials),
        n_architectures=len(study.target),
        n_excluded=int((~usable).sum()),
        r2=quality.r2 if quality else None,
        r2_low=quality.r2_bounds[0] if quality else None,
        r2_high=quality.r2_bounds[1] if quality else None,
        p_value=quality.p_value if quality else None,
        noise_ceiling=inference.noise_ceiling(every_target[usable], groups) if len(trials) else None,
        reliable=refusal is None,
        refusal=refusal,
        effects=tuple(sorted(effects, key=_order)),
        interactions=judge_interactions(study, evidence) if evidence else (),
        checks=evidence.checks if evidence else (),
        surrogate=_named(quality) if quality else "",
        n_random=int(study.at_random.sum()),
        n_outliers=outliers,
    )


def _silent(step: str, share: float) -> None:
    """Report to nobody."""


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


def _numeric_target(series: pandas.Series) -> NDArray[np.float64]:
    try:
        return np.asarray(pandas.to_numeric(series).to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError) as error:
        raise InputError(f"target {series.name!r} must hold numbers: {error}") from error


def _study(
    trials: pandas.DataFrame,
    groups: NDArray[np.intp],
    target: NDArray[np.float64],
    properties: Sequence[str],
    seed: int,
) -> tuple[Study, tuple[Property, ...], int]:
    """Return what is ranked, one row per architecture; the constant properties; the number of outliers."""
    first = np.unique(groups, return_index=True)[1]
    rows = trials.iloc[first]
    means = np.bincount(groups, target) / np.bincount(groups) if len(groups) else np.zeros(0)
    drawn_in, outliers = inference.draw_in_outliers(means) if len(means) else (means, 0)
    encoded, constant = encode([encode_property(rows[name]) for name in properties])
    series = {name: rows[name].tolist() for name in properties}
    levels = tuple(levels_of(n, encoded, series[one.name]) for n, one in enumerate(encoded.properties))
    origin = trials[ORIGIN] if ORIGIN in trials else pandas.Series(RANDOM, index=trials.index)
    random_groups = groups[(origin == RANDOM).to_numpy(dtype=bool)]
    at_random = np.isin(np.arange(len(means)), random_groups)
    designs = make_designs(encoded) if encoded.properties else ()
    return Study(encoded, levels, designs, drawn_in, at_random, seed), constant, outliers


def _measurable(study: Study, folds: int) -> bool:
    """Whether there are enough architectures to fold, a property that varies, and a target that does."""
    enough = len(study.target) >= 2 * folds
    return enough and bool(study.encoded.properties) and bool(np.ptp(study.target) > 0)


def _refusal(
    study: Study, quality: Quality | None, target: str, trials: int, least: tuple[int, int], folds: int
) -> str | None:
    """Return the sentence of the gate: counts first, then what varies, then quality; None where all is passed."""
    refusal = inference.refusal_of_counts(trials, len(study.target), *least)
    if refusal is not None:
        return refusal
    if not study.encoded.properties:
        return "no reliable ranking: no property varied between the trials"
    if quality is None:
        return f"no reliable ranking: {target} is the same in all {trials} trials"
    more = None
    if quality.r2 < inference.SMALLEST_R2:
        more = inference.trials_for_r2(len(study.target), quality.r2, r2_of_half(study, folds))
    return inference.refusal_of_quality(quality.r2, quality.r2_bounds, quality.p_value, len(study.target), more)


def _named(quality: Quality) -> str:
    numbers = "numbers as curves" if quality.design.degree > 1 else "numbers as straight lines"
    products = "with products of pairs" if quality.design.interaction_weight else "additive"
    return f"ridge regression, {products}, {numbers}"


def _constant(one: Property) -> PropertyEffect:
    n = int(one.applies.sum())
    return PropertyEffect(one.name, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "not varied", None, CONSTANT, n)


def _order(effect: PropertyEffect) -> tuple[bool, float, int]:
    """Most important first, constant ones last; of a group the one that applies to most rows, then the order given."""
    return effect.verdict == CONSTANT, -(effect.importance or 0.0), -effect.n
