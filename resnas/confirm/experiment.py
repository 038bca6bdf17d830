"""From a plan to outcomes: rates chosen again, both arms of every pair run with the same seeds, then one look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnas.comparison import sign
from resnas.confirm.looks import number_looks
from resnas.confirm.paired import Paired, compare, error_of_look
from resnas.confirm.plan import Pair, Plan
from resnas.confirm.tuning import TUNING, Tuned, make_run, tune
from resnas.confirm.verdict import Verdict, failing, judge, judge_best
from resnas.runs import Run, Runner
from resnas.study import Study
from resnas.trial import TrialResult

LOOKS = "looks.json"


@dataclass(frozen=True)
class Outcome:
    """What came out for one pair."""

    pair: Pair
    arms: tuple[Tuned, Tuned]
    """Base and changed."""
    seeds: int
    failed: tuple[int, int]
    """Runs of each arm that failed; their pairs are left out."""
    look: int
    error: float
    """Two-sided error of each interval."""
    together: int
    """Pairs whose intervals hold at the same time."""
    paired: dict[str, Paired]
    """By metric; the first decides."""
    verdict: Verdict


@dataclass(frozen=True)
class Findings:
    """All outcomes, what could not be compared, and one row per run."""

    outcomes: Sequence[Outcome]
    remarks: Sequence[str]
    run_rows: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Arms:
    """The runs of both arms of a pair, one per seed, and their results."""

    pair: Pair
    tuned: tuple[Tuned, Tuned]
    runs: tuple[list[Run], list[Run]]
    results: tuple[list[TrialResult], list[TrialResult]]


def carry_out(study: Study, plan: Plan, seeds: int, factors: Sequence[float], runner: Runner, folder: Path) -> Findings:
    """Run what a plan needs and judge it.

    Args:
        study: whose budget, data and seed.
        plan: the pairs to compare.
        seeds: per arm, at least 2.
        factors: of each arm's learning rate, to choose from.
        runner: of the runs; reuses what there is.
        folder: where looks are recorded.

    Raises:
        Aborted: the runner was told to stop.
        ResnasError: results cannot be written.
    """
    runner.expected = _expected(plan, seeds, factors)
    arms = _run_seeds(study, plan, _tuned(study, plan, factors, runner), seeds, runner)
    looks = number_looks(
        folder / LOOKS, {_looked_at(one.pair): [run.identity for runs in one.runs for run in runs] for one in arms}
    )
    together = {pair.kind: len(plan.of(pair.kind)) for pair in plan.pairs}
    outcomes = [_judged(one, looks[_looked_at(one.pair)], together[one.pair.kind], seeds) for one in arms]
    return Findings(outcomes, plan.remarks, _run_rows(arms, runner))


def _expected(plan: Plan, seeds: int, factors: Sequence[float]) -> int:
    """Return how many different runs there will be, if no grid is extended."""
    tuned = {one.key for pair in plan.pairs for one in (pair.base, pair.changed) if pair.is_tuned}
    compared = {(one.key, pair.kind, pair.is_tuned) for pair in plan.pairs for one in (pair.base, pair.changed)}
    return len(tuned) * (len(factors) if len(factors) > 1 else 0) + len(compared) * seeds


def _tuned(study: Study, plan: Plan, factors: Sequence[float], runner: Runner) -> dict[tuple[str, bool], Tuned]:
    """Return each arm with its rate, by key and whether it is tuned."""
    every = {(one.key, pair.is_tuned): one for pair in plan.pairs for one in (pair.base, pair.changed)}
    chosen = {name: one for name, one in every.items() if name[1]}
    tuned = dict(zip(chosen, tune(study, list(chosen.values()), factors, runner), strict=True)) if chosen else {}
    return tuned | {name: Tuned(one) for name, one in every.items() if not name[1]}


def _run_seeds(
    study: Study, plan: Plan, tuned: dict[tuple[str, bool], Tuned], seeds: int, runner: Runner
) -> list[Arms]:
    """Run both arms of all pairs, seed by seed, so that what is interrupted has whole pairs."""
    both = [(tuned[pair.base.key, pair.is_tuned], tuned[pair.changed.key, pair.is_tuned]) for pair in plan.pairs]
    runs = [
        [[make_run(study, one.architecture, index, test=pair.kind == "best") for index in range(seeds)] for one in arms]
        for pair, arms in zip(plan.pairs, both, strict=True)
    ]
    ordered = [arm[index] for index in range(seeds) for pair_runs in runs for arm in pair_runs]
    found = {run.identity: result for run, result in zip(ordered, runner.run(ordered, "pairs"), strict=True)}
    return [
        Arms(
            pair,
            arms,
            (base, changed),
            ([found[run.identity] for run in base], [found[run.identity] for run in changed]),
        )
        for pair, arms, (base, changed) in zip(plan.pairs, both, runs, strict=True)
    ]


def _looked_at(pair: Pair) -> str:
    """Return what looks are counted by: the claim, whatever architecture it is tested in."""
    if pair.claim is not None:
        return f"{pair.target}: {pair.name}"
    return f"{pair.target}: {pair.changed.key} instead of {pair.base.key}"


def _judged(arms: Arms, look: int, together: int, seeds: int) -> Outcome:
    """Compare both arms in all metrics, and give the verdict by the first."""
    pair, error, next_error = arms.pair, error_of_look(look, together), error_of_look(look + 1, together)
    paired = {
        name: compare(_values(arms.results[0], name), _values(arms.results[1], name), error) for name in pair.metrics
    }
    failed = tuple(sum(result.state != "complete" for result in results) for results in arms.results)
    target = paired[pair.target]
    if pair.claim is not None:
        verdict = judge(target, pair.claim.direction, pair.claim.effect, next_error)
    else:
        verdict = judge_best(target, sign(pair.metrics[pair.target]), next_error)
    fails = failing((pair.base.label, pair.changed.label), failed, seeds)
    return Outcome(pair, arms.tuned, seeds, (failed[0], failed[1]), look, error, together, paired, fails or verdict)


def _values(results: Sequence[TrialResult], metric: str) -> list[float]:
    """Return a metric of each run; NaN where it is not complete, so that its pair is left out."""
    return [one.metrics.get(metric, math.nan) if one.state == "complete" else math.nan for one in results]


def _run_rows(arms: Sequence[Arms], runner: Runner) -> list[dict[str, Any]]:
    """Return one row per run: what for, in which arms, seeds, rate, ending, metrics."""
    used: dict[str, tuple[Run, str, list[str]]] = {}
    for one in arms:
        for role, tuned, runs in zip(("from", "to"), one.tuned, one.runs, strict=True):
            for what, some in ((TUNING, tuned.runs), ("test" if one.pair.kind == "best" else "pair", runs)):
                for run in some:
                    used.setdefault(run.identity, (run, what, []))[2].append(f"{role} ({one.pair.name})")
    results = runner.run([run for run, _, _ in used.values()])
    return [
        {
            "run": identity,
            "purpose": what,
            "arm": "; ".join(dict.fromkeys(roles)),
            "seed": run.spec.seed,
            "data_seed": run.spec.data_seed,
            "learning_rate": run.spec.architecture["training"]["learning_rate"],
            "state": result.state,
            "reason": result.reason,
            **result.metrics,
        }
        for (identity, (run, what, roles)), result in zip(used.items(), results, strict=True)
    ]
