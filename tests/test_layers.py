"""The shape of the package: imports point one way, each heavy library has its doors, light commands stay light."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "resnas"
LAYERS = [
    {"cli"},
    {"dashboard"},
    {"report"},
    {"export"},
    {"analysis", "confirm"},
    {"search", "runs"},
    {"ranking", "executor", "files", "bench"},
    {"train"},
    {"dilution"},
    {"model"},
    {"study"},
    {"comparison"},
    {"fingerprint", "results", "space", "trial"},
    {"by_name", "cost"},
    {"tasks", "architecture"},
    {"problems", "residual"},
    {"yaml_file", "record", "lock"},
    {"errors", "allocator", "atomic", "evidence"},
    {"passwords"},
]
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}
DOORS = {
    "torch": {"residual", "model", "dilution", "tasks", "train", "bench", "export"},
    "safetensors": {"export"},
    "lightning": {"train"},
    "optuna": {"search", "report", "dashboard"},
    "optuna_dashboard": {"dashboard"},
    "sklearn": {"ranking", "tasks"},
    "plotly": {"report"},
    "pandas": {"ranking", "analysis"},
    "psutil": {"executor"},
    "typer": {"cli"},
    "rich": {"cli"},
    "yaml": {"yaml_file", "files"},
    "ray": {"executor"},
}


def imports() -> list[tuple[str, str, bool]]:
    """Return (unit, imported module, only for type checking) for every import in the package."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        unit = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text())
        for_types = {
            node
            for branch in ast.walk(tree)
            if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
            for node in ast.walk(branch)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [(unit, alias.name, node in for_types) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"resnas.{alias.name}" for alias in node.names] if node.module == "resnas" else [node.module]
                found += [(unit, name, node in for_types) for name in names]
    return found


def test_imports_point_one_way():
    wrong = []
    for unit, module, _ in imports():
        if unit == "__init__" or not module.startswith("resnas.") or module == "resnas.__version__":
            continue
        imported = module.split(".")[1]
        if imported != unit and LEVEL[imported] <= LEVEL[unit]:
            wrong.append(f"{unit} imports {imported}")
    assert not wrong


def test_every_unit_has_a_layer():
    units = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("__")}
    assert units == set(LEVEL)


@pytest.mark.parametrize("library", DOORS)
def test_each_heavy_library_has_its_doors(library):
    users = {unit for unit, module, for_types in imports() if module.split(".")[0] == library and not for_types}
    assert users == DOORS[library]


HEAVY = ("torch", "lightning", "sklearn", "plotly", "optuna", "pandas", "numpy", "ray")


def loaded(code: str) -> set[str]:
    """Return the heavy libraries that a fresh process has loaded after `code`."""
    report = f"print('loaded', *(name for name in {HEAVY} if name in sys.modules))"
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "code",
    [
        "import resnas",
        "sys.argv[1:] = ['--help']; from resnas.cli import main; main()",
        "sys.argv[1:] = ['search', '--help']; from resnas.cli import main; main()",
        "sys.argv[1:] = ['check']; from resnas.cli import main; main()",
        "sys.argv[1:] = ['schema', 'study']; from resnas.cli import main; main()",
    ],
)
def test_light_commands_load_nothing_heavy(code):
    assert loaded(code) == set()


def test_the_check_above_can_fail():
    assert loaded("import resnas.model") >= {"torch"}


@pytest.mark.timed
@pytest.mark.parametrize(("arguments", "limit_s"), [(["--help"], 0.5), (["check"], 1.5)])
def test_light_commands_are_fast(arguments, limit_s):
    """The best of five, warm: other work on the machine must not count."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "cli.py", *arguments], check=True, capture_output=True, cwd=PACKAGE.parent)
        times.append(time.perf_counter() - started)
    assert min(times) < limit_s


def test_files_are_small_and_say_what_they_own():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert ast.get_docstring(ast.parse(text)), path
        assert text.count("\n") <= 300, path
