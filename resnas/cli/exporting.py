"""The command `export`: find a trained model and what its study says of it, and write both for use elsewhere."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from resnas.cli.options import DEFAULT_STUDY
from resnas.cli.tables import make_console
from resnas.errors import InputError
from resnas.export.choice import chosen, kept_trial
from resnas.export.evidence import Evidence, gather
from resnas.export.source import Source, read_source
from resnas.export.trained import read_record
from resnas.export.writing import write_export
from resnas.search import load_trials
from resnas.search.opening import trial_folder
from resnas.study import Study


def run_export(
    path: Path | None, wanted: str | None, trained: Path | None, output: Path | None, overrides: list[str]
) -> None:
    """Export a trial of a study, or what `train` has left in a folder."""
    if trained is not None:
        if wanted is not None:
            raise InputError(
                "--architecture and --trained: give one of the two; a trained folder holds one architecture"
            )
        source, evidence = _from_folder(trained, path, overrides)
        folder = output or trained / "exported"
    else:
        study = Study.load(path or DEFAULT_STUDY, overrides)
        trials = load_trials(study)
        key = chosen(study, trials, wanted).key
        number = kept_trial(study, trials, key)
        source = read_source(trial_folder(study, number), f"Trial {number} of the study `{study.name}`")
        evidence = gather(study, trials, key)
        folder = output or study.results_folder / "exported" / f"{key}-trial{number:04d}"
    remark = write_export(source, evidence, folder)
    console = make_console()
    console.print(f"[bold]{escape(source.architecture.label)}[/bold] is in {escape(str(folder))}", soft_wrap=True)
    console.print(escape(remark.replace("`", "")), highlight=False, soft_wrap=True)


def _from_folder(folder: Path, path: Path | None, overrides: list[str]) -> tuple[Source, Evidence | None]:
    """Return a model that `train` has left, and what its study says; None where that is not there or was not begun."""
    record = read_record(folder)
    if record is None:
        raise InputError(f"{folder}: was not written by python cli.py train; give the folder that holds its spec.json")
    source = read_source(folder, f"Trained on its own for {record.spec.budget['steps']:,} steps")
    if path is None and not record.study.is_file():
        return source, None
    study = Study.load(path or record.study, overrides)
    try:
        trials = load_trials(study)
    except InputError:
        return source, None
    return source, gather(study, trials, source.architecture.key)
