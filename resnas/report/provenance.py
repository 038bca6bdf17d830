"""How the results were obtained: task, data, budget, search, seeds, versions, counts and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from optuna.trial import FrozenTrial

from resnas.comparison import finite
from resnas.report.material import Material, unit
from resnas.report.words import counted, duration, joined, number
from resnas.results import ending_counts


def facts(material: Material) -> dict[str, str]:
    """Return what a reader needs to judge or repeat the study, by heading."""
    study, search = material.study, material.study.search
    seeds = {row["seed"] for row in material.rows}
    found = {
        "Study file": study.path.name,
        "Search space": study.space,
        "Task": f"{study.task_name}: {_options(study.task.model_dump(mode='json'))}",
        "Data (sha256)": _data(material),
        "To compare with": _baselines(material.environment.get("baselines")),
        "Budget of a trial": _options(study.budget.model_dump(mode="json")),
        "Limits": ", ".join(limit for name, bound in study.limits.items() for limit in bound.excesses(name, 0.0)),
        "Objectives": ", ".join(f"{way} {name}" for name, way in material.objectives.items()),
        "Sampler": f"{search.sampler}, the first {number(100 * search.random_share, 3)} % of the trials at random",
        "Pruner": search.pruner,
        "Seeds": f"study seed {search.seed}; {counted(search.replicates, 'seed')} per architecture asked for; "
        f"{counted(len(seeds), 'seed')} of initial weights used",
        "Trials": _endings(material),
        "Space widened": _extensions(material.environment.get("extensions")),
        "Where trials came from": _origins(material),
        "Left out": _left_out(material),
        "Time": _time(material),
        "Versions and machine": _versions(material.environment),
    }
    return {heading: text for heading, text in found.items() if text}


def _options(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _data(material: Material) -> str:
    hashes = Counter(str(row["data_sha256"]) for row in material.compared)
    return joined([text for text in hashes if text])


def _baselines(baselines: Any) -> str:
    """Write baselines, which may be numbers or mappings of numbers."""
    if not isinstance(baselines, dict):
        return ""
    parts = []
    for name, value in baselines.items():
        if isinstance(value, dict):
            parts.append(f"{name}: {_baselines(value)}")
        else:
            metric, _, what = str(name).partition("/")
            parts.append(f"{what or metric} {number(value)} {metric if what else unit(metric)}".strip())
    return "; ".join(parts)


def _endings(material: Material) -> str:
    asked = f"{material.study.search.n_trials} asked for"
    return joined([asked, *[f"{n} {ending}" for ending, n in ending_counts(material.trials).items() if n]])


def _extensions(extensions: Any) -> str:
    if not isinstance(extensions, list):
        return ""
    return "; ".join(f"after {one['trials_before']} trials: {', '.join(one['changes'])}" for one in extensions)


def _origins(material: Material) -> str:
    origins = Counter(str(row["origin"]) for row in material.rows if row["origin"])
    return ", ".join(f"{name} {count}" for name, count in origins.most_common())


def _left_out(material: Material) -> str:
    parts = [f"{counted(material.excluded, 'complete trial')} trained on other data"] if material.excluded else []
    missing = len(material.compared) - len(material.measurements)
    if missing:
        parts.append(
            f"{counted(missing, 'complete trial')} without measurements over depth (left out of those figures only)"
        )
    ended = ending_counts(material.trials)
    if ended["pruned"] + ended["failed"]:
        parts.append("pruned and failed trials, from every comparison")
    return joined(parts) or "nothing"


def _time(material: Material) -> str:
    parts = []
    wall_s = wall_time_s(material.trials)
    if wall_s is not None:
        parts.append(f"{duration(wall_s)} from the first start to the last end, pauses included")
    train_s = sum(finite(row.get("train_time_s") for row in material.rows))
    if train_s:
        parts.append(f"{duration(train_s)} of training and validation, summed over trials")
    return "; ".join(parts)


def wall_time_s(trials: Sequence[FrozenTrial]) -> float | None:
    """Return the seconds from the first start to the last end; None where none has ended."""
    starts: list[datetime] = [trial.datetime_start for trial in trials if trial.datetime_start]
    ends: list[datetime] = [
        trial.datetime_complete for trial in trials if trial.datetime_start and trial.datetime_complete
    ]
    return (max(ends) - min(starts)).total_seconds() if ends else None


def _versions(environment: dict[str, Any]) -> str:
    """Write the versions and the machine, as far as they were kept."""
    kept = [environment.get(part) for part in ("versions", "packages")]
    parts = [
        f"{name} {version}" for versions in kept if isinstance(versions, dict) for name, version in versions.items()
    ]
    words = {
        "platform": "",
        "cpus": " CPUs",
        "trials_at_a_time": " trials at a time",
        "threads_per_trial": " threads each",
    }
    parts += [f"{environment[name]}{word}" for name, word in words.items() if environment.get(name) is not None]
    return ", ".join(parts)
