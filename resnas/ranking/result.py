"""What a ranking says: one frozen record per property, one for the whole, and their sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas

SUPPORTED = "supported"
SUGGESTIVE = "suggestive"
NOT_SEPARABLE = "not separable from noise"
CONSTANT = "constant"


@dataclass(frozen=True)
class LevelMean:
    """The estimated target at one level of a property, all else as it is in the study, with its 90 % interval."""

    name: str
    mean: float
    low: float | None
    high: float | None
    n: int
    """Architectures that have the level."""


@dataclass(frozen=True)
class Interaction:
    """How far the effect of one property depends on another, in units of the target: the standard deviation over the
    architectures of what their products contribute."""

    one: str
    other: str
    size: float
    p_value: float
    """Against shuffled residuals of a model without it, corrected for the number of pairs."""
    verdict: str


@dataclass(frozen=True)
class Check:
    """The ranking once more by other means.

    Attributes:
        name: what was done otherwise.
        r2: held-out R².
        agreement: −1 to 1, how alike the order of importance is (Kendall's τ, weighted so that the leaders count most).
    """

    name: str
    r2: float
    agreement: float | None


@dataclass(frozen=True)
class PropertyEffect:
    """What one property does to the target. Sizes are in units of the target; None means not measured.

    Properties named in `correlated_with` were moved together with this one: they share importance, p-value and verdict,
    and `effect` is that of the whole group, because the data cannot tell them apart.
    """

    name: str
    importance: float | None
    """Rise of the held-out RMSE when the property is permuted, over the architectures where it applies. Below 0 is
    possible."""
    importance_low: float | None
    importance_high: float | None
    """90 % interval of the importance: bootstrap over architectures with refit."""
    effect: float | None
    """Numeric: estimated target in the highest fifth (or at the highest of at most five values) minus in the lowest.
    Boolean: true minus false. Categorical: the highest level minus the lowest, so never below 0; with more than two
    it is corrected for their being picked."""
    effect_low: float | None
    effect_high: float | None
    """90 % interval of the effect, from the same bootstrap."""
    direction: str
    p_value: float | None
    """Against shuffled residuals of a model without it, corrected for the number of properties."""
    verdict: str
    n: int
    """Architectures where the property applies."""
    correlated_with: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Properties that apply only for some values of this one, and so were moved along with it."""
    second_importance: float | None = None
    """The importance that the second surrogate gives."""
    leader_share: float | None = None
    """Share of bootstrap studies in which it is among the three most important."""
    levels: tuple[LevelMean, ...] = ()
    """The estimated target at each level: partial dependence with held-out correction."""

    def extremes(self) -> tuple[str, str] | None:
        """Return the names of the levels with the lowest and the highest mean; None where none were compared."""
        if not self.levels:
            return None
        ordered = sorted(self.levels, key=lambda level: level.mean)
        return ordered[0].name, ordered[-1].name


@dataclass(frozen=True)
class Ranking:
    """The properties in order of importance for one target, or the reason why there is no reliable order."""

    target: str
    seed: int
    n_trials: int
    n_architectures: int
    n_excluded: int
    """Rows left out because their target was missing or not finite."""
    r2: float | None
    """Held-out R² of the surrogate on architectures it never saw (means over their seeds)."""
    r2_low: float | None
    r2_high: float | None
    """90 % interval of R²: bootstrap over architectures."""
    p_value: float | None
    """Share of shuffled targets whose held-out R² is as high."""
    noise_ceiling: float | None
    """1 − variance due to seeds / variance: the R² that no model can beat. None without replicates."""
    reliable: bool
    refusal: str | None
    """Why there is no reliable ranking, and what may help; None where there is one."""
    effects: tuple[PropertyEffect, ...]
    interactions: tuple[Interaction, ...] = ()
    """Of the most important properties, the strongest first."""
    checks: tuple[Check, ...] = ()
    surrogate: str = ""
    n_random: int = 0
    """Architectures that were drawn at random; a sampler that seeks good ones biases a ranking."""
    n_outliers: int = 0
    """Architectures whose target was drawn in to the fence, three interquartile ranges from the quartiles."""

    def moved_together(self) -> list[PropertyEffect]:
        """Return the properties that varied, most important first, one for each group that was moved together."""
        seen: set[frozenset[str]] = set()
        kept = []
        for effect in self.effects:
            group = frozenset((effect.name, *effect.correlated_with))
            if effect.verdict != CONSTANT and effect.importance is not None and group not in seen:
                seen.add(group)
                kept.append(effect)
        return kept

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per property, most important first; each says whether the whole is `reliable`."""
        names = [field.name for field in fields(PropertyEffect)]
        rows = [
            {**asdict(effect), "correlated_with": " ".join(effect.correlated_with), "options": " ".join(effect.options)}
            for effect in self.effects
        ]
        names.remove("levels")  # they have a table of their own
        frame = pandas.DataFrame(rows, columns=names)
        frame.insert(0, "target", self.target)
        frame["reliable"] = self.reliable
        return frame

    def levels_frame(self) -> pandas.DataFrame:
        """Return one row per property and level: the partial dependence."""
        rows = [
            (self.target, effect.name, level.name, level.mean, level.low, level.high, level.n)
            for effect in self.effects
            for level in effect.levels
        ]
        return pandas.DataFrame(rows, columns=["target", "property", "level", "mean", "low", "high", "n"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None where something was not measured."""
        return asdict(self)

    def sentence(self, most: int = 3) -> str:
        """Return the verdict in one or two sentences, naming at most `most` properties of each kind."""
        if not self.reliable:
            return f"{self.target}: {self.refusal}."
        quality = (
            f"{self.target}: held-out R² = {number(self.r2)} {interval(self.r2_low, self.r2_high)} "
            f"from {self.n_trials} trials of {self.n_architectures} architectures."
        )
        parts = []
        for verdict in (SUPPORTED, SUGGESTIVE):
            found = [effect for effect in self.moved_together() if effect.verdict == verdict]
            if found:
                named = "; ".join(describe(effect) for effect in found[:most])
                more = f"; and {len(found) - most} more" if len(found) > most else ""
                parts.append(f"{verdict}: {named}{more}")
        if not parts:
            return f"{quality} No single property is separable from noise."
        findings = ". ".join(part[0].upper() + part[1:] for part in parts)
        return f"{quality} {findings}.{self._dependences()}"

    def _dependences(self) -> str:
        """Say which effects depend on one another, so that nobody takes an average for the effect everywhere."""
        pairs = [f"{pair.one} and {pair.other}" for pair in self.interactions if pair.verdict == SUPPORTED]
        if not pairs:
            return ""
        return f" These are averages over the study; effects that depend on one another: {'; '.join(pairs)}."


def describe(effect: PropertyEffect) -> str:
    """Return one property's effect in words: `depth: higher lowers dilution, effect −0.31 (90 % interval … to …)`."""
    twins = f" (not told apart from {', '.join(effect.correlated_with)})" if effect.correlated_with else ""
    size = f"effect {number(effect.effect, 3)} {interval(effect.effect_low, effect.effect_high, 3)}"
    return f"{effect.name}{twins}: {effect.direction}, {size}"


def number(value: float | None, digits: int = 2) -> str:
    """Write a number with a true minus sign: two decimals, or `digits` significant ones for sizes in metric units."""
    if value is None:
        return "not measured"
    text = f"{value:.2f}" if digits == 2 else f"{value:.{digits}g}"
    return text.replace("-", "−")


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Write a 90 % interval in brackets."""
    if low is None or high is None:
        return "(interval not measured)"
    return f"(90 % interval {number(low, digits)} to {number(high, digits)})"
