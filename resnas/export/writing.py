"""The exported folder: weights, values, card, and the topology as modules; written whole, file by file."""

from __future__ import annotations

from pathlib import Path

from resnas.atomic import write_text
from resnas.errors import InputError
from resnas.export.card import card
from resnas.export.evidence import Evidence
from resnas.export.loading import WEIGHTS, write_weights
from resnas.export.modules import write_modules
from resnas.export.source import Source
from resnas.files import write_yaml
from resnas.space import plain

ARCHITECTURE, CARD = "architecture.yaml", "README.md"


def write_export(source: Source, evidence: Evidence | None, folder: Path) -> str:
    """Write a model for use elsewhere.

    Args:
        source: the model.
        evidence: what its study says; None where there is none.
        folder: made, or written over where it is an exported one.

    Returns:
        A sentence about the modules of its topology, or why there are none.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; give another --output")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder}: holds other files, and no exported model; give another --output")
    try:
        modules = write_modules(source.architecture, folder)
        write_yaml(folder / ARCHITECTURE, plain(source.architecture))
        write_text(folder / CARD, card(source, evidence, modules))
        write_weights(source, folder)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from error
    return modules
