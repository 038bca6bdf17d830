"""The command `bench`: what depth mixing costs, at the sizes asked for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from resnas.bench import Case, Measured, Variant, circumstances, jobs, measured, rows
from resnas.bench.case import Implementation
from resnas.cli.tables import make_console, print_rows
from resnas.errors import InputError
from resnas.files import write_json
from resnas.problems import check, problems_of
from resnas.record import find_class, make_named
from resnas.residual import TOPOLOGIES, FullDepthAttention, Topology
from resnas.yaml_file import Document, parse_yaml

FAMILIES = [
    "fixed",
    "scalar_learned",
    "windowed_depth_attention: {window: 8}",
    "full_depth_attention",
]
PEERS: tuple[Implementation, ...] = ("definition", "stack")
LONGEST_CONTEXT = 256
"""Tokens per example, unless asked for."""
SIZES = ("device", "precision", "width", "tokens", "threads")
"""Columns that a table for people leaves out where they say the same in every row."""


def run_bench(
    residuals: Sequence[str],
    sizes: dict[str, list[int]],
    options: dict[str, Any],
    peers: bool,
    output: Path,
    format: str,
) -> None:
    """Measure every combination of sizes, print a table, write `bench.json` and `bench.html`."""
    families = [Variant(_topology(text)) for text in residuals or FAMILIES]
    compared = [Variant(FullDepthAttention(), implementation) for implementation in PEERS] if peers else []
    facts = circumstances(options["device"])
    cases = []
    for chosen in itertools.product(*sizes.values()):
        size = dict(zip(sizes, chosen, strict=True))
        context = options["context"] or min(LONGEST_CONTEXT, size["tokens"])
        cases.append(Case(**{**options, **size, "context": context, "device": facts["device"]}))
    table = rows(_measure(cases, families, compared))
    write_json(output / "bench.json", {"circumstances": facts, "rows": table})
    from resnas.report.bench import write_bench

    page = write_bench(output, table, facts)
    if format != "table":
        print_rows(table, format)
        return
    same = {name for name in SIZES if len({row[name] for row in table}) == 1}
    empty = {name for name in table[0] if all(row[name] is None for row in table)}
    print_rows([{k: v for k, v in row.items() if k not in same | empty} for row in table], format, _title(table, same))
    make_console().print(f"The plot: {page}", highlight=False)


def _measure(cases: Sequence[Case], families: Sequence[Variant], peers: Sequence[Variant]) -> list[Measured]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("bench", total=sum(len(jobs(case, families, peers)) for case in cases))
        started = itertools.count()
        return [
            one
            for case in cases
            for one in measured(
                case,
                families,
                peers,
                lambda job: progress.update(task, description=str(job), completed=next(started)),
            )
        ]


def _topology(text: str) -> Topology:
    """Return the topology that `name` or `name: {option: value}` stands for."""
    where = f"--residual {text}"
    value: Any = parse_yaml(text, where).values if "{" in text else text.strip()
    try:
        return make_named(value, TOPOLOGIES, Topology, "residual topology")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except ValidationError as error:
        name = next(iter(value)) if isinstance(value, dict) else value
        cls = find_class(name, TOPOLOGIES, Topology, "residual topology")
        check(Document(where, {}, {}, {}), problems_of(error, cls, above=(name,)))
        raise  # not reached: there is a problem


def _title(table: Sequence[dict[str, Any]], same: set[str]) -> str:
    facts = [f"{name} {table[0][name]}" for name in SIZES if name in same]
    return "What depth mixing costs" + (f" ({', '.join(facts)})" if facts else "")
