"""The commands and their options."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from resnas.cli import commands_analyze, commands_found, commands_report
from resnas.cli.confirm_options import CONFIRM_EXAMPLES, confirm
from resnas.cli.options import DEFAULT_STUDY, Format, Overrides, StudyFile, TableFormat, examples

app = typer.Typer(
    name="resnas",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Search over residual topologies: which one to use, which of its properties cut dilution, how sure is that?",
    epilog="Example: [bold]python cli.py search[/bold] runs the quickstart study. "
    "Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.",
)


class ExecutorName(str, enum.Enum):
    """Where trials run."""

    local = "local"
    ray = "ray"


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (may stand anywhere).")] = False,
) -> None:
    """Options of every command; `--debug` is taken by `main` before."""


@app.command(
    epilog=examples(
        "search",
        "search studies/khop.yaml --workers 2 --timeout 1h30m",
        "search --set search.n_trials=200 --set budget.steps=1000 studies/quickstart.yaml",
        "search --executor ray --ray-address 10.0.0.1:6379 --gpus-per-trial 0.5",
    )
)
def search(
    study: StudyFile = DEFAULT_STUDY,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials at the same time; default: one per core or GPU.")
    ] = None,
    executor: Annotated[ExecutorName | None, typer.Option(help="This machine (the default), or a Ray cluster.")] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of a Ray cluster; auto: the one on this machine. Default: RAY_ADDRESS, or else a new local one.",
        ),
    ] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="Of its Ray node; default: the threads of a trial.")
    ] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="Share of one GPU of its Ray node, 0 to 1; default: 0, no GPU.")
    ] = None,
    n_trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of the study in all, those of earlier runs included.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="End this run after so long (2h, 1h30m); what there is then is reported."
        ),
    ] = None,
    max_failures: Annotated[
        int | None, typer.Option(min=1, help="End the search after so many failed trials in a row; default: 8.")
    ] = None,
    new_study: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Copy the study file to NAME.yaml and search that, as a study of its own."),
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Go on though the space has grown since; the change is recorded.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Explore a space: train its architectures, rank their properties, write a report.

    Runs until the study has its number of trials. Ctrl-C ends it cleanly; the same command goes on from there.
    """
    from resnas.cli.durations import seconds
    from resnas.cli.searching import run_search

    options = {
        "workers": workers,
        "n_trials": n_trials,
        "timeout_s": timeout and seconds(timeout, "--timeout"),
        "max_failures": max_failures,
        "executor": executor and executor.value,
        "ray_address": ray_address and json.dumps(ray_address),
        "cpus_per_trial": cpus_per_trial,
        "gpus_per_trial": gpus_per_trial,
    }
    given = [f"search.{name}={value}" for name, value in options.items() if value is not None]
    run_search(study, [*(overrides or []), *given], new_study, extend)


@app.command(epilog=examples("check search_spaces/quickstart.yaml", "check studies/quickstart.yaml --examples 5"))
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A search space or a study.")] = DEFAULT_STUDY,
    examples: Annotated[int, typer.Option(min=0, help="Sampled architectures to show.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Check a file: errors, size of the space, sampled architectures, parameters, FLOPs, expected time."""
    from resnas.cli.checking import run_check

    run_check(file, examples, seed, list(overrides or []), format.value)


@app.command(epilog=examples("status", "status studies/khop.yaml --format json"))
def status(study: StudyFile = DEFAULT_STUDY, overrides: Overrides = None, format: TableFormat = Format.table) -> None:
    """Show how far a study is: what runs where, time left, failures by reason, the best so far over time."""
    from resnas.cli.status import run_status

    run_status(study, list(overrides or []), format.value)


app.command(epilog=commands_analyze.EXAMPLES)(commands_analyze.analyze)
app.command(epilog=examples(*CONFIRM_EXAMPLES))(confirm)
app.command(epilog=commands_report.EXAMPLES)(commands_report.report)


@app.command(epilog=examples("dashboard", "dashboard studies/khop.yaml --port 8081"))
def dashboard(
    study: StudyFile = DEFAULT_STUDY,
    host: Annotated[
        str, typer.Option(help="Address to serve on; the dashboard has no password, so keep it on loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    overrides: Overrides = None,
) -> None:
    """Serve the study with optuna-dashboard, our figures and notes included."""
    from resnas.cli.showing import run_dashboard

    run_dashboard(study, host, port, list(overrides or []))


@app.command(epilog=examples("clean --dry-run", "clean studies/khop.yaml --keep 3"))
def clean(
    study: StudyFile = DEFAULT_STUDY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            min=0, help="Best trials whose checkpoints stay.", show_default="the study's search.keep_checkpoints"
        ),
    ] = None,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Delete what of a study's results nobody needs: checkpoints of all but the best trials, unfinished files.

    Results stay (logs, metrics, result.json, study.db), and so do checkpoints that interrupted trials will go on from.
    Refuses while a search runs the study.
    """
    from resnas.cli.cleaning import run_clean

    run_clean(study, dry_run, keep, list(overrides or []), format.value)


for command in (commands_found.train, commands_found.export):
    app.command(epilog=commands_found.EXAMPLES[command.__name__])(command)


class Device(str, enum.Enum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Precision(str, enum.Enum):
    """How precisely to multiply; bfloat16 by autocast."""

    float32 = "float32"
    bfloat16 = "bfloat16"


@app.command(
    epilog=examples(
        "bench",
        "bench --depth 32 --peers",
        "bench --residual '{windowed_depth_attention: {window: 4}}' --depth 8 --width 48 --tokens 512 --context 64",
        "bench --depth 16 --depth 32 --threads 1 --threads 2 --format json",
    )
)
def bench(
    residual: Annotated[
        list[str] | None,
        typer.Option(metavar="YAML", help="A topology, as in a space; may be repeated. Default: four families."),
    ] = None,
    depth: Annotated[list[int] | None, typer.Option(min=1, help="Layers; may be repeated. Default: 4, 8, 16.")] = None,
    width: Annotated[list[int] | None, typer.Option(min=1, help="Features; may be repeated. Default: 256.")] = None,
    tokens: Annotated[list[int] | None, typer.Option(min=1, help="Per step; may be repeated. Default: 1024.")] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="May be repeated. Default: 1.")] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens per example.", show_default="all tokens, at most 256")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved rounds that count.")] = 7,
    warmup: Annotated[int, typer.Option(min=0, help="Rounds before them.")] = 4,
    peers: Annotated[
        bool, typer.Option("--peers", help="Time the plain definition and a stack-based implementation too (slow).")
    ] = False,
    device: Annotated[Device, typer.Option(help="auto takes a GPU where there is one.")] = Device.auto,
    precision: Annotated[Precision, typer.Option(help="bfloat16 by autocast.")] = Precision.float32,
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    output: Annotated[Path, typer.Option(help="Folder for bench.json and bench.html.")] = Path("studies/bench"),
    format: TableFormat = Format.table,
) -> None:
    """Time what depth mixing costs: a training step, its memory, a generated token, each against `fixed`.

    All topologies take their steps in turns; the table shows medians and the quartiles of the ratio.
    """
    from resnas.cli.benching import run_bench

    sizes = {
        "depth": depth or [4, 8, 16],
        "width": width or [256],
        "tokens": tokens or [1024],
        "threads": threads or [1],
    }
    options = {
        "context": context,
        "repeats": repeats,
        "warmup": warmup,
        "device": device.value,
        "precision": precision.value,
        "seed": seed,
    }
    run_bench(residual or [], sizes, options, peers, output, format.value)


class Kind(str, enum.Enum):
    """What a YAML file can be."""

    space = "space"
    study = "study"


@app.command(epilog=examples("schema space > space.schema.json"))
def schema(kind: Annotated[Kind, typer.Argument(help="Kind of file.")]) -> None:
    """Print the JSON Schema of a kind of file, for editors that complete and check YAML."""
    from resnas.cli.checking import print_schema

    print_schema(kind.value)
