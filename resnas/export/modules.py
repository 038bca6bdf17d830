"""The topology of a model as plain torch: a template filled in with its values, or the user's own source."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnas.architecture import Architecture
from resnas.atomic import write_text
from resnas.residual import TOPOLOGIES

TEMPLATES = Path(__file__).parent / "templates"
MODULE, EXAMPLE, LOADER = "depth_mixing.py", "example.py", "load_trained.py"
_IMPORT = re.compile(r"^from resnas\.export\.templates\.\w+ import", re.MULTILINE)


def write_modules(architecture: Architecture, folder: Path) -> str:
    """Write the topology of an architecture as modules.

    Returns:
        A sentence about what lies there, or why nothing does.
    """
    if architecture.family not in TOPOLOGIES:
        return _write_own(architecture.family.partition(":")[0], folder)
    values = {"SUBLAYERS": architecture.sublayers, "WIDTH": architecture.width}
    values |= {name.upper(): value for name, value in architecture.residual.model_dump().items()}
    write_text(folder / MODULE, filled(f"{architecture.family}.py", values))
    write_text(folder / EXAMPLE, filled(EXAMPLE, {"HEADS": architecture.heads}))
    write_text(folder / LOADER, filled(LOADER, {}))
    return (
        f"`{MODULE}` holds the topology as one plain `torch.nn.Module`, its equations in the docstring. It keeps "
        f"all that it mixes, so resnas itself trains deep stacks faster. `python {EXAMPLE}` trains it in a plain "
        f"PyTorch Transformer. Both need torch only. `{LOADER}` gives it the trained parameters (with safetensors)."
    )


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with the values of its constants, and its imports as they are in an exported folder."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        line = f"{name} = {json.dumps(value) if isinstance(value, str) else repr(value)}"
        text, found = re.subn(rf"^{name} = .*$", line.replace("\\", r"\\"), text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"the template {template} sets {name} {found} times, not once")
    return _IMPORT.sub("from depth_mixing import", text)


def _write_own(module: str, folder: Path) -> str:
    """Copy the user's module with those beside it that it needs; return a sentence about it, or why that cannot be."""
    why_not = f"The topology is not exported as a module: `{module}`"
    try:
        file = getattr(importlib.import_module(module), "__file__", None)
    except Exception as error:
        return f"{why_not} cannot be imported ({str(error).partition(chr(10))[0]})."
    if file is None or not file.endswith(".py"):
        return f"{why_not} has no Python source."
    root = Path(file).parents[module.count(".") + (Path(file).name == "__init__.py")]
    if "site-packages" in root.parts or root == Path(json.__file__).parents[1]:
        return f"{why_not} is part of an installed package; install that to use it."
    names = _needed(module.partition(".")[0], root)
    for path in (path for name in names for path in _files(name, root)):
        write_text(folder / path.relative_to(root), path.read_text(encoding="utf-8"))
    return (
        f"The topology is your own, so its source is copied as it is: {', '.join(f'`{name}`' for name in names)}. It "
        f"needs what that imports, resnas included: `build(sublayers, width)` of its class returns a `torch.nn.Module` "
        f"whose `row` gives the weights of a read."
    )


def _needed(name: str, root: Path) -> list[str]:
    """Return a module or package in `root` and those beside it that it imports, directly or not."""
    found, left = [], [name]
    while left:
        name = left.pop()
        if name in found or name == "resnas" or name in sys.stdlib_module_names or not _files(name, root):
            continue
        found.append(name)
        for path in _files(name, root):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    left += [alias.name.partition(".")[0] for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    left.append(node.module.partition(".")[0])
    return found


def _files(name: str, root: Path) -> list[Path]:
    """Return the source files of a top-level module or package."""
    single, package = root / f"{name}.py", root / name
    return [single] if single.is_file() else sorted(package.rglob("*.py")) if package.is_dir() else []
