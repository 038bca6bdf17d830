"""What lies in a folder that `train` has written: what was trained, for which study, and the result."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from resnas.errors import InputError
from resnas.files import write_json
from resnas.study import Study
from resnas.trial import TrialResult, TrialSpec

SPEC, RESULT = "spec.json", "result.json"


@dataclass(frozen=True)
class TrainedRecord:
    """What was trained in a folder."""

    spec: TrialSpec
    study: Path
    """File of the study whose task and budget it has."""
    result: TrialResult | None
    """None where the training is not finished."""


def write_record(folder: Path, spec: TrialSpec, study: Study) -> None:
    """Write down what is about to be trained; the study's file relative to the folder, so that both may move."""
    kept = {name: value for name, value in asdict(spec).items() if name not in ("folder", "checkpoint")}
    write_json(folder / SPEC, kept | {"study": os.path.relpath(study.path, folder)})


def read_record(folder: Path) -> TrainedRecord | None:
    """Return what was trained in a folder; None where nothing was. Raises InputError where its files are damaged."""
    if not (folder / SPEC).is_file():
        return None
    try:
        spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
        study = Path(os.path.normpath(folder / spec.pop("study")))
        return TrainedRecord(TrialSpec(**spec, folder=str(folder)), study, read_result(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder / SPEC}: cannot be read: {error}; delete the folder to train again") from error


def read_result(folder: Path) -> TrialResult | None:
    """Return the result in the folder of a trial; None where there is none. Raises ValueError where it is damaged."""
    path = folder / RESULT
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    return TrialResult(**{name: kept[name] for name in TrialResult.__dataclass_fields__})
