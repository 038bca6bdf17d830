"""From evidence to what is said of each property, and of each pair."""

from __future__ import annotations

import numpy as np

from resnas.ranking import inference
from resnas.ranking.design import Vector
from resnas.ranking.effects import NO_DIRECTION, direction, is_picked
from resnas.ranking.evidence import Evidence, Quality, Study
from resnas.ranking.result import NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, Interaction, LevelMean, PropertyEffect

Bounds = tuple[Vector, Vector]


def judge(study: Study, quality: Quality | None, evidence: Evidence | None, target: str) -> list[PropertyEffect]:
    """Return what is known about each property that varies; without evidence none is separable from noise."""
    if quality is None or evidence is None:
        return [_unmeasured(study, quality, position) for position in range(len(study.encoded.properties))]
    importance = quality.result.importances()
    bounds = inference.shifted_interval(importance, evidence.importance_draws)
    p_values = inference.holm(inference.p_values_above(quality.result.relative_importances(), evidence.null))
    second_share = evidence.second_importance / quality.result.unit_rmses()
    share = evidence.leader_share()
    effects = []
    for position, one in enumerate(study.encoded.properties):
        unit = study.levels[position].part
        effect, low, high = _effect(study, evidence, position)
        verdict = verdict_of(
            float(p_values[unit]),
            float(importance[unit]),
            float(bounds[0][unit]),
            float(second_share[unit]),
        )
        way = direction(one, study.levels[position].names, evidence.pairs[position], low, high, target)
        effects.append(
            PropertyEffect(
                name=one.name,
                importance=float(importance[unit]),
                importance_low=float(bounds[0][unit]),
                importance_high=float(bounds[1][unit]),
                effect=effect,
                effect_low=low,
                effect_high=high,
                direction=NO_DIRECTION if verdict == NOT_SEPARABLE else way,
                p_value=float(p_values[unit]),
                verdict=verdict,
                n=int(one.applies.sum()),
                correlated_with=_partners(study, position),
                options=_options(study, position),
                second_importance=float(evidence.second_importance[unit]),
                leader_share=float(share[unit]),
                levels=_levels(study, evidence, position),
            )
        )
    return effects


def verdict_of(p_value: float, importance: float, low: float, second_share: float) -> str:
    """Supported: beats chance (p < 0.05), its interval lies above 0, and the second surrogate needs it too, by at least
    a fiftieth of the held-out error.

    Suggestive: p < 0.2 and importance > 0.
    """
    if importance <= 0 or p_value >= inference.LARGEST_SUGGESTIVE_P:
        return NOT_SEPARABLE
    sure = p_value < inference.LARGEST_P and low > 0 and second_share >= inference.SMALLEST_SECOND_SHARE
    return SUPPORTED if sure else SUGGESTIVE


def judge_interactions(study: Study, evidence: Evidence) -> tuple[Interaction, ...]:
    """Return the interactions of the leading units, each named by its first property."""
    names = [study.encoded.properties[unit.members[0]].name for unit in study.encoded.units]
    found = []
    for pair in evidence.interactions:
        verdict = NOT_SEPARABLE
        if pair.p_value < inference.LARGEST_SUGGESTIVE_P:
            verdict = SUPPORTED if pair.p_value < inference.LARGEST_P else SUGGESTIVE
        found.append(Interaction(names[pair.one], names[pair.other], pair.size, pair.p_value, verdict))
    return tuple(found)


def _unmeasured(study: Study, quality: Quality | None, position: int) -> PropertyEffect:
    """Return a property of a ranking that was refused: at most its importance is known, and not how sure it is."""
    one = study.encoded.properties[position]
    importance = float(quality.result.importances()[study.levels[position].part]) if quality else None
    return PropertyEffect(
        name=one.name,
        importance=importance,
        importance_low=None,
        importance_high=None,
        effect=None,
        effect_low=None,
        effect_high=None,
        direction=NO_DIRECTION if quality else "not measured",
        p_value=None,
        verdict=NOT_SEPARABLE,
        n=int(one.applies.sum()),
        correlated_with=_partners(study, position),
        options=_options(study, position),
    )


def _effect(study: Study, evidence: Evidence, position: int) -> tuple[float, float, float]:
    """Return the effect and its interval; that of picked levels is corrected for their being picked."""
    pair, means = evidence.pairs[position], evidence.means[position]
    estimate = np.array([means[pair[1]] - means[pair[0]]])
    draws = evidence.effect_draws[:, [position]]
    if is_picked(study.encoded.properties[position], means):
        middle, low, high = inference.reflected_interval(estimate, draws)
        return max(0.0, float(middle[0])), float(low[0]), float(high[0])
    low, high = inference.shifted_interval(estimate, draws)
    return float(estimate[0]), float(low[0]), float(high[0])


def _levels(study: Study, evidence: Evidence, position: int) -> tuple[LevelMean, ...]:
    levels, means = study.levels[position], evidence.means[position]
    lows, highs = inference.shifted_interval(means, evidence.mean_draws[position])
    return tuple(
        LevelMean(name, float(means[n]), float(lows[n]), float(highs[n]), int((levels.of_row == n).sum()))
        for n, name in enumerate(levels.names)
    )


def _partners(study: Study, position: int) -> tuple[str, ...]:
    unit = study.encoded.units[study.levels[position].part]
    return tuple(study.encoded.properties[other].name for other in unit.members if other != position)


def _options(study: Study, position: int) -> tuple[str, ...]:
    return tuple(study.encoded.properties[other].name for other in study.encoded.options[position])
