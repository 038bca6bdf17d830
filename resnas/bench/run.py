"""Which measurements a benchmark is made of, each in a fresh process, and how they are put together.

A fresh process per measurement gives memory that no other variant has touched, and keeps a peer that runs out of memory
from taking the other figures with it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any, Literal

from resnas.bench.case import Case, Measured, Variant
from resnas.residual import Fixed

FIXED = Variant(Fixed())
PEER_REPEATS = 2
"""Rounds of slow peers that count; one more warms up."""


@dataclass(frozen=True)
class Job:
    """One measurement: a function of `resnas.bench.measure`, and the variants that it compares."""

    function: Literal["step_times_s", "peak_memory_bytes", "token_times_s"]
    case: Case
    variants: tuple[Variant, ...]

    def __str__(self) -> str:
        """Say what it does, for a progress bar."""
        words = {"step_times_s": "training steps", "peak_memory_bytes": "memory", "token_times_s": "generated tokens"}
        last = self.variants[-1]
        which = "" if last.implementation == "resnas" else f" of the {last.implementation}"
        return f"{self.case.depth} layers, {self.case.threads} threads: {words[self.function]}{which}"


def circumstances(device: str) -> dict[str, str]:
    """Return what figures depend on: the device (`auto` takes a GPU where there is one), its name, torch's version.

    Raises:
        InputError: there is no such device.
    """
    found: dict[str, str] = _in_fresh_process("circumstances", device)
    return found


def jobs(case: Case, families: Sequence[Variant], peers: Sequence[Variant]) -> list[Job]:
    """Return the measurements of one size: `families` in turns with `fixed`, then each of the slow `peers` with it."""
    compared = _compared(case, families)
    slow = replace(case, warmup=1, repeats=PEER_REPEATS)
    return [
        Job("step_times_s", case, compared),
        Job("token_times_s", case, compared),
        *(Job("peak_memory_bytes", case, (variant,)) for variant in compared),
        *(Job("step_times_s", slow, (FIXED, peer)) for peer in peers),
        *(Job("peak_memory_bytes", slow, (peer,)) for peer in peers),
    ]


def measured(
    case: Case,
    families: Sequence[Variant],
    peers: Sequence[Variant],
    progress: Callable[[Job], None] = lambda job: None,
) -> list[Measured]:
    """Measure one size; `progress` is called before each job. What fails is named in `Measured.failures`."""
    found = {variant: Measured(case, variant) for variant in (*_compared(case, families), *peers)}
    for job in jobs(case, families, peers):
        progress(job)
        try:
            _record(found, job, _in_fresh_process(job.function, job.case, *job.variants))
        except Exception as error:
            reason = "the process was killed, out of memory?" if isinstance(error, BrokenProcessPool) else str(error)
            for variant in job.variants[1:] or job.variants:
                found[variant].failures.append(f"{job}: {reason}".split("\n")[0])
    for one in found.values():
        one.fixed_memory_bytes = found[FIXED].peak_memory_bytes
    return list(found.values())


def _compared(case: Case, families: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return `fixed` and the families, each in its simplest form at this depth, once."""
    sublayers = case.architecture(FIXED.residual).sublayers
    simplest = (replace(variant, residual=variant.residual.canonical(sublayers)) for variant in families)
    return tuple(dict.fromkeys((FIXED, *simplest)))


def _record(found: dict[Variant, Measured], job: Job, result: Any) -> None:
    """Put the result of a job where it belongs; a peer's own rounds do not replace those of `fixed`."""
    if job.function == "peak_memory_bytes":
        found[job.variants[0]].peak_memory_bytes = result
        return
    for variant, own in zip(job.variants, result, strict=True):
        one = found[variant]
        if job.function == "token_times_s":
            one.token_times_s, one.fixed_token_times_s = own, result[0]
        elif not one.step_times_s:
            one.step_times_s, one.fixed_times_s = own, result[0]


def _in_fresh_process(function: str, *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_call, function, *arguments).result()


def _call(function: str, *arguments: Any) -> Any:
    """Call a function of `resnas.bench.measure`, which loads torch."""
    from resnas.bench import measure

    return getattr(measure, function)(*arguments)
