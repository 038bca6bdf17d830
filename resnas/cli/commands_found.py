"""The declarations of the commands that use what a study has found: `train` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from resnas.cli.options import DEFAULT_STUDY, Format, Overrides, StudyFile, TableFormat, examples

EXAMPLES = {
    "train": examples(
        "train --steps 3000",
        "train studies/khop.yaml --architecture 3f2a --seed 1",
        "train --architecture one.yaml --set training.learning_rate=1e-3 --steps 3000",
        "train --trainer accumulate_grad_batches=2 --trainer precision=bf16-mixed",
    ),
    "export": examples(
        "export",
        "export studies/khop.yaml --architecture 3f2a --output found",
        "export --trained studies/quickstart/trained/3f2a91c07d-3000steps-seed0",
    ),
}
Wanted = Annotated[
    str | None,
    typer.Option(
        "--architecture",
        metavar="KEY|FILE.yaml",
        help="Key in the study (its beginning will do), or a file as export writes it.",
        show_default="the study's best by its first objective",
    ),
]


def train(
    study: StudyFile = DEFAULT_STUDY,
    architecture: Wanted = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.", show_default="the study's")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and of the order of batches.")] = 0,
    trainer: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any option of Lightning's Trainer; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results.", show_default="studies/<name>/trained/<key>-<steps>steps-seed<seed>"
        ),
    ] = None,
    overrides: Overrides = None,
    format: TableFormat = Format.table,
) -> None:
    """Train one architecture of a study, or of a file, for longer, and measure it on the test split.

    Task and budget are the study's. `--set architecture.…` and `--set training.…` change the architecture itself.

    Ctrl-C ends it; the same command goes on from the last validation.
    """
    from resnas.cli.training import run_train

    run_train(study, architecture, steps, seed, list(trainer or []), output, list(overrides or []), format.value)


def export(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY.yaml", help="The study file.", show_default=str(DEFAULT_STUDY))
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Key in the study (its beginning will do).",
            show_default="the study's best by its first objective",
        ),
    ] = None,
    trained: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that train has written, instead of a trial.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write.", show_default="studies/<name>/exported/<key>-trial<number>, DIR/exported"),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Export a trained model: weights, architecture, a model card with the evidence, its topology in plain torch."""
    from resnas.cli.exporting import run_export

    run_export(study, architecture, trained, output, list(overrides or []))
