"""What code a machine needs to run the trials of a study: resnas as it is here, and the user's own modules."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from resnas.by_name import IMPORTABLE
from resnas.errors import InputError

MOST_MIB = 50
NOT_SHIPPED = shutil.ignore_patterns(
    "__pycache__", ".*", "*.pyc", "*.ckpt", "*.pt", "*.pth", "*.db", "*.partial", "*.egg-info"
)


def dotted_names(values: Any) -> set[str]:
    """Return every `package.module:Class` among the keys and values of nested plain values."""
    if isinstance(values, dict):
        values = [*values, *values.values()]
    if isinstance(values, list):
        return set().union(*(dotted_names(value) for value in values))
    return {values} if isinstance(values, str) and re.match(IMPORTABLE, values) else set()


def stage(folder: Path, names: Iterable[str]) -> None:
    """Copy into a folder what makes `names` importable where the folder is on the path.

    That is resnas, and for each module of a name that is not installed, all modules and packages that lie beside it,
    because it may import them.

    Args:
        folder: where to; it must be empty.
        names: `package.module:Class`; those of installed packages are left out.

    Raises:
        InputError: this is more than `MOST_MIB`.
    """
    package = Path(__file__).parent.parent
    shutil.copytree(package, folder / package.name, ignore=NOT_SHIPPED)
    version = metadata.version(package.name)
    about = folder / f"{package.name}-{version}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {version}\n", encoding="utf-8")
    places = {place for name in names if (place := _place(name.partition(":")[0])) is not None}
    for place in sorted(places):
        for source in [place, *_importable(place.parent)]:
            target = folder / source.name
            if target.exists():
                continue
            if source.is_dir():
                shutil.copytree(source, target, ignore=NOT_SHIPPED, ignore_dangling_symlinks=True)
            else:
                shutil.copy2(source, target)
            _check_size(folder, place.parent)


def _place(module: str) -> Path | None:
    """Return the file or folder of a module's topmost package, or None where it is installed or unknown."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.name == "resnas":
        return None
    folders = list(spec.submodule_search_locations or [])
    place = Path(folders[0] if folders else str(spec.origin))
    installed = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return place if place.exists() and not installed & set(place.parents) else None


def _importable(root: Path) -> Iterator[Path]:
    """Yield the modules and packages in a folder."""
    for path in sorted(root.iterdir()):
        if path.suffix == ".py" or (path / "__init__.py").is_file():
            yield path


def _check_size(folder: Path, root: Path) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST_MIB * 2**20:
        raise InputError(
            f"the modules in {root} are more than {MOST_MIB} MiB, too much to send to other machines; put the modules "
            "of the study into a folder of their own, or install them on every machine"
        )
