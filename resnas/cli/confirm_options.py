"""The command `confirm` and its options."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from resnas.cli.options import DEFAULT_STUDY, Format, Overrides, StudyFile, TableFormat

CONFIRM_EXAMPLES = (
    "confirm",
    "confirm studies/four_families.yaml --target dilution --top 2 --seeds 8",
    "confirm studies/four_families.yaml --target dilution --target val_loss --claim family --claim depth=4..12",
    "confirm --claim depth=4..12 --match parameters",
    "confirm --claim family=fixed..full_depth_attention --no-best --format json",
)


class Match(str, enum.Enum):
    """What both arms of a claim must have equal."""

    parameters = "parameters"
    flops = "flops"


def confirm(
    study: StudyFile = DEFAULT_STUDY,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="Metric that is claimed to move; may be repeated. Default: the first."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Leading claims of each ranking to test, at most.")] = 3,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY[=LOW..HIGH]",
            help="Test this instead, whether or not the ranking supports it; may be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="Runs of each arm; those of an earlier, smaller number are reused.")
    ] = 5,
    match: Annotated[
        Match | None,
        typer.Option(help="Make both arms equally large, by the mlp_ratio of the changed one."),
    ] = None,
    rates: Annotated[
        str, typer.Option(metavar="FACTORS", help="Learning rates to choose from for each arm, over the base's.")
    ] = "0.5,1,2",
    best: Annotated[
        bool, typer.Option("--best/--no-best", help="Train the study's best again and judge it on the test split.")
    ] = True,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Test what a ranking claims, by controlled runs in pairs: the same architecture with and without one change.

    Both arms get the study's budget, a learning rate of their own, and the same fresh seeds. Ctrl-C ends it cleanly;
    the same command goes on from there.
    """
    from resnas.cli.confirming import Request, run_confirm

    targets, claims = (list(dict.fromkeys(given or [])) for given in (target, claim))
    request = Request(targets, top, claims, seeds, match and match.value, rates, best)
    run_confirm(study, request, list(overrides or []), format.value)
