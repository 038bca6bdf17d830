"""A study whose trials are made up, with effects that are known: what a report of many trials is tested on."""

import csv
import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from resnas.search.opening import trial_folder
from resnas.study import Study

SPACE = """
resnas: 1
architecture:
  depth: [2, 3]
  width: 16
  heads: 2
  residual:
    - fixed
    - scalar_learned
    - windowed_depth_attention: {window: 2}
    - full_depth_attention
training:
  learning_rate: {low: 1e-3, high: 1e-1, log: true}
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
objectives: OBJECTIVES
budget: {steps: 100, validations: 4, measure_at: [0.5, 1.0]}
search: {n_trials: 200, seed: 3, replicates: 2}
"""
STEPS = (25, 50, 75, 100)
FAILING_RATE = 0.07
"""Learning rate from which on every architecture fails."""
STARTED = datetime(2026, 1, 1)


def planted_study(folder: Path, objectives: str = "val_loss") -> Study:
    """Return a study that has no results yet."""
    (folder / "space.yaml").write_text(SPACE)
    (folder / "planted.yaml").write_text(STUDY.replace("OBJECTIVES", objectives))
    return Study.load(folder / "planted.yaml")


def planted_trials(study: Study, architectures: int, seeds: int = 2, seed: int = 0) -> list[FrozenTrial]:
    """Return the trials of so many architectures, their files written.

    In `fixed` and `scalar_learned` less dilution goes with less loss, in the others with more. A trial takes 10 s.
    """
    random = Random(seed)
    trials: list[FrozenTrial] = []
    for position in range(architectures):
        architecture = study.search_space.build(study.search_space.draw(random))
        origin = "random" if position < 0.6 * architectures else "tpe"
        strength = random.random()
        fails = architecture.training.learning_rate > FAILING_RATE
        for replicate in range(1 if fails else seeds):
            attributes = {
                "resnas.architecture": architecture.model_dump(mode="json"),
                "resnas.key": architecture.key,
                "resnas.label": architecture.label,
                "resnas.replicate": replicate,
                "resnas.seed": random.getrandbits(31),
                "resnas.origin": "replicate" if replicate else origin,
                "resnas.ending": "failed" if fails else "complete",
                "resnas.reason": "non-finite loss: at step 7" if fails else "",
                "resnas.data_sha256": "planted",
            }
            metrics = {} if fails else _metrics(architecture, strength, random)
            number = len(trials)
            trials.append(_trial(study, number, attributes | metrics, fails))
            if not fails:
                _write_files(study, number, architecture.sublayers, metrics, random)
    return trials


def _metrics(architecture, strength: float, random: Random) -> dict[str, float]:
    helps = architecture.family in ("fixed", "scalar_learned")
    loss = 2 + (strength if helps else -strength) + 0.1 * architecture.depth
    return {
        "val_loss": loss + random.gauss(0, 0.02),
        "dilution": strength + random.gauss(0, 0.02),
        "effective_depth": 0.2 + 0.3 * random.random(),
        "late_share": 0.5 * random.random(),
        "train_time_s": 10.0,
        "step_time_s": 0.01 + 0.001 * random.random(),
        "parameters": 1000,
        "flops": 2000,
    }


def _trial(study: Study, number: int, attributes: dict, fails: bool) -> FrozenTrial:
    trial = optuna.trial.create_trial(
        state=TrialState.FAIL if fails else TrialState.COMPLETE,
        values=None if fails else [attributes[name] for name in study.objectives],
        params={"made_up": 0},
        distributions={"made_up": CategoricalDistribution([0])},
        user_attrs=attributes,
    )
    trial.number = number
    trial.datetime_start = STARTED + timedelta(seconds=10 * number)
    trial.datetime_complete = trial.datetime_start + timedelta(seconds=10)
    return trial


def _write_files(study: Study, number: int, sublayers: int, metrics: dict[str, float], random: Random) -> None:
    folder = trial_folder(study, number)
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["step", "train_loss", "val_loss"])
        writer.writeheader()
        for step in STEPS:
            writer.writerow({"step": step - 1, "train_loss": 1.0})
            early = random.gauss(0, 1 - step / STEPS[-1])
            writer.writerow({"step": step, "val_loss": metrics["val_loss"] + early})
    measured = {
        "newest_share": [read ** -metrics["dilution"] for read in range(2, sublayers + 2)],
        "hidden_size": [1 + random.random() for _ in range(sublayers)],
        "contribution_ratio": [random.random() for _ in range(sublayers)],
    }
    matrix = [[math.exp(random.gauss(0, 1)) for _ in range(read)] for read in range(1, sublayers + 2)]
    half = {"step": 50, "metrics": {"dilution": metrics["dilution"] + random.gauss(0, 0.1)}}
    whole = {"step": 100, "metrics": {"dilution": metrics["dilution"]}, "profiles": measured, "matrix": matrix}
    result = {"state": "complete", "metrics": metrics, "measurements": [half, whole]}
    (folder / "result.json").write_text(json.dumps(result))


CONFIRMATIONS: list[dict] = [
    {
        "claim": f"family: {after} instead of fixed lowers dilution, whatever the depth of the model may be",
        "property": "family",
        "from": "fixed",
        "to": after,
        "target": "dilution",
        "verdict": verdict,
        "sentence": f"dilution: {after} instead of fixed changes it by {difference}: {verdict}.",
        "metrics": {
            "dilution": {"difference": difference, "low": low, "high": high, "effect_size": -2.9, "n": 5, "p": 0.002},
            "val_loss": {"difference": 0.125, "low": -0.5, "high": 0.75, "effect_size": 0.3, "n": 5, "p": 0.42},
        },
    }
    for after, difference, low, high, verdict in (
        ("full_depth_attention", -0.41, -0.49, -0.33, "confirmed"),
        ("scalar_learned", 0.2, 0.1, 0.3, "refuted"),
        ("windowed_depth_attention", -0.1, -0.3, 0.1, "undecided: about 12 more seeds"),
    )
]
CONFIRMATIONS.append(
    {
        "claim": "the best architecture against the best fixed one",
        "property": None,
        "from": "fixed",
        "to": "full_depth_attention",
        "target": "test_loss",
        "verdict": "better",
        "verdict_text": "better: by more than the luck of seeds",
        "sentence": "test_loss: the best architecture has 0.25 less than the best fixed one: better.",
        "remarks": ["one run of five failed", "the rate was tuned anew"],
        "metrics": {
            "test_loss": {"difference": -0.25, "low": -0.375, "high": -0.125, "effect_size": -1.5, "n": 4, "p": 0.01}
        },
    }
)
