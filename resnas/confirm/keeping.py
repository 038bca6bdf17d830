"""The files of a confirmation: `confirm.json`, `confirm.csv` and `confirm_runs.csv` in the results folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from resnas.confirm.experiment import Findings, Outcome
from resnas.confirm.words import remarks, sentence
from resnas.files import write_json
from resnas.results import write_csv

SHOWN = ("difference", "low", "high", "effect_size", "n", "p")
"""Fields of `Paired` that files and tables show."""


def keep(findings: Findings, folder: Path) -> None:
    """Write all three files, each whole. Raises OSError where that fails."""
    write_csv(findings.run_rows, folder / "confirm_runs.csv")
    write_csv(metric_rows(findings), folder / "confirm.csv")
    write_json(folder / "confirm.json", [as_object(outcome) for outcome in findings.outcomes])


def metric_rows(findings: Findings) -> list[dict[str, Any]]:
    """Return one row per pair and metric; the verdict stands beside the metric that decides."""
    rows = []
    for outcome in findings.outcomes:
        for metric, found in outcome.paired.items():
            numbers = asdict(found)
            decides = metric == outcome.pair.target
            rows.append(
                {
                    "target": outcome.pair.target,
                    "claim": outcome.pair.name,
                    "metric": metric,
                    **{name: numbers[name] for name in SHOWN},
                    "verdict": outcome.verdict.text if decides else "",
                }
            )
    return rows


def as_object(outcome: Outcome) -> dict[str, Any]:
    """Return plain values for JSON; None where something was not measured or does not apply."""
    pair, change, claim = outcome.pair, outcome.pair.change, outcome.pair.claim
    paired = {metric: asdict(found) for metric, found in outcome.paired.items()}
    return {
        "kind": pair.kind,
        "claim": pair.name,
        "property": claim.subject if claim else None,
        "from": change.before if change else pair.base.label,
        "to": change.after if change else pair.changed.label,
        "option": change.option if change else None,
        "changes_as_well": list(change.moved_along) if change else [],
        "not_told_apart_from": list(claim.together_with) if claim else [],
        "depends_on": list(claim.depends_on) if claim else [],
        "base_key": pair.base.key,
        "changed_key": pair.changed.key,
        "base": pair.base.label,
        "changed": pair.changed.label,
        "target": pair.target,
        "claimed": _claimed(outcome),
        "matched": asdict(pair.matched) if pair.matched else None,
        "learning_rates": {"from": outcome.arms[0].rate, "to": outcome.arms[1].rate},
        "seeds": outcome.seeds,
        "failed": {"from": outcome.failed[0], "to": outcome.failed[1]},
        "look": outcome.look,
        "interval_error": outcome.error,
        "judged_together": outcome.together,
        "verdict": outcome.verdict.name,
        "verdict_text": outcome.verdict.text,
        "more_seeds": outcome.verdict.more,
        "sentence": sentence(outcome),
        "remarks": remarks(outcome),
        "metrics": {metric: {name: numbers[name] for name in SHOWN} for metric, numbers in paired.items()},
    }


def _claimed(outcome: Outcome) -> dict[str, Any] | None:
    claim = outcome.pair.claim
    if claim is None:
        return None
    return {
        "direction": claim.direction,
        "effect": claim.effect,
        "low": claim.effect_low,
        "high": claim.effect_high,
        "ranking_verdict": claim.ranking_verdict,
    }
