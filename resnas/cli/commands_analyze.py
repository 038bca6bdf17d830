"""The command `analyze` and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from resnas.cli.options import DEFAULT_STUDY, Format, Overrides, StudyFile, TableFormat, examples

EXAMPLES = examples(
    "analyze",
    "analyze --target effective_depth --format csv > effects.csv",
    "analyze studies/khop.yaml --target failed",
    "analyze --self-test --studies 50",
)


def analyze(
    study: StudyFile = DEFAULT_STUDY,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to rank properties by, or failed (what makes trials fail); may be repeated. Default: those of "
            "the study."
        ),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Run the protocol on pure noise and on planted effects, and count its errors.",
        ),
    ] = False,
    studies: Annotated[int, typer.Option(min=1, help="Of each kind, for the self-test.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the self-test.")] = 0,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Rank the properties of the architectures by what they do to a metric, or say why that is not possible yet.

    A property is supported, suggestive, or not separable from noise; Optuna's own importances stand beside.
    """
    from resnas.cli.analyzing import run_analyze, run_self_test

    if self_test:
        run_self_test(studies, seed, format.value)
    else:
        run_analyze(study, list(target or []), list(overrides or []), format.value)
