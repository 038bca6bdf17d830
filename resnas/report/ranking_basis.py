"""What a ranking rests on: its trials and those left out, its surrogate against chance and noise, and its checks."""

from __future__ import annotations

from resnas.analysis import FAILED
from resnas.ranking import Ranking
from resnas.report import tables
from resnas.report.exhibit import ReportTable, Row, identifier
from resnas.report.material import Material, called
from resnas.report.words import counted, joined, number

RULE = (
    "Complete trials on the same data are ranked, an architecture by its mean over seeds. Pruned trials are left out, "
    "because their metrics are of a shorter training, and failed ones, because they have none."
)
RULE_OF_FAILURES = (
    "Failed trials count as 1 and complete ones as 0, an architecture by its mean over seeds. Pruned trials are left "
    "out, because nobody knows how they would have ended."
)
READING = (
    "R² is that of architectures which the surrogate never saw, with its 90 % interval; p is the share of shuffled "
    "targets that it predicts as well. Agreement is that of the order of importance (weighted τ): 1 is the same order, "
    "0 none."
)


def basis(material: Material, ranking: Ranking) -> ReportTable:
    """Return the list of what a ranking rests on; one that was refused has one, too."""
    facts = {
        "trials": f"{counted(ranking.n_trials, 'trial')} of {counted(ranking.n_architectures, 'architecture')}, "
        f"{ranking.n_random} of which were drawn at random",
        "left out": _left_out(material, ranking),
        "drawn in": f"{counted(ranking.n_outliers, 'outlier')}, to three interquartile ranges from the quartiles",
        "surrogate": _surrogate(ranking),
        "checks": _checks(ranking),
        "seed": str(ranking.seed),
    }
    rule = RULE_OF_FAILURES if ranking.target == FAILED else RULE
    return ReportTable(
        id=identifier(f"basis-{ranking.target}"),
        title=f"What the ranking of {called(ranking.target)} rests on",
        caption=f"{rule} {READING}" if ranking.r2 is not None else rule,
        rows=_rows(material, ranking),
        html=tables.definitions({word: text for word, text in facts.items() if text}),
    )


def _rows(material: Material, ranking: Ranking) -> list[Row]:
    """Return one row per fact, and per check with its agreement."""
    counts: list[Row] = [
        {"fact": fact, "value": value}
        for fact, value in {
            "trials": ranking.n_trials,
            "architectures": ranking.n_architectures,
            "architectures drawn at random": ranking.n_random,
            **_counts_left_out(material, ranking),
            "outliers drawn in": ranking.n_outliers,
        }.items()
    ]
    return [
        *counts,
        {"fact": "held-out R²", "value": ranking.r2, "low": ranking.r2_low, "high": ranking.r2_high}
        | {"by": ranking.surrogate},
        {"fact": "noise ceiling of R²", "value": ranking.noise_ceiling},
        {"fact": "p against shuffled targets", "value": ranking.p_value},
        *({"fact": "check: R²", "value": one.r2, "by": one.name} for one in ranking.checks),
        *({"fact": "check: agreement", "value": one.agreement, "by": one.name} for one in ranking.checks),
        {"fact": "seed", "value": str(ranking.seed)},
    ]


def _counts_left_out(material: Material, ranking: Ranking) -> dict[str, int]:
    endings = [row["ending"] for row in material.rows]
    found = {"pruned": endings.count("pruned")}
    if ranking.target != FAILED:
        found |= {"failed": endings.count("failed"), "on other data": material.excluded}
    return found | {"without a finite value": ranking.n_excluded}


def _left_out(material: Material, ranking: Ranking) -> str:
    counts = {why: n for why, n in _counts_left_out(material, ranking).items() if n}
    return joined([f"{n} {why}" for why, n in counts.items()]) or "none"


def _surrogate(ranking: Ranking) -> str:
    """Say how well the surrogate predicts, against what chance and the noise of seeds allow."""
    if ranking.r2 is None:
        return ""
    ends = (
        f" ({number(ranking.r2_low, 2)} to {number(ranking.r2_high, 2)})"
        if ranking.r2_low is not None and ranking.r2_high is not None
        else ""
    )
    ceiling = (
        "how much is noise is not known, for no architecture has several seeds"
        if ranking.noise_ceiling is None
        else f"no model can beat {number(ranking.noise_ceiling, 2)}, because seeds differ"
    )
    name = f"{ranking.surrogate}: " if ranking.surrogate else ""
    return f"{name}held-out R² {number(ranking.r2, 2)}{ends}; {ceiling}; p = {number(ranking.p_value, 2)}"


def _checks(ranking: Ranking) -> str:
    return "; ".join(
        f"{one.name}: R² {number(one.r2, 2)}, agreement {number(one.agreement, 2)}" for one in ranking.checks
    )
