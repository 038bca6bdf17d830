"""The README is true: its commands are those of CI, its example of a topology runs, its pictures and files exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def example_topology() -> str:
    (module,) = [block for block in blocks("python") if "Topology" in block]
    return module


def test_the_two_commands_stand_alone_on_their_lines_and_ci_takes_the_second():
    lines = README.splitlines()
    assert "pip install -e . && python cli.py search" in lines
    assert "pip install -e '.[test]' && pytest" in lines
    pattern = re.search(r'grep -m1 -xE "(.+?)" README.md', (ROOT / ".ci" / "run").read_text())
    assert pattern is not None
    assert [line for line in lines if re.fullmatch(pattern[1], line)] == ["pip install -e '.[test]' && pytest"]


def test_the_example_topology_is_searched(tmp_path):
    module, example = example_topology(), next(block for block in blocks("yaml") if "fading" in block)
    (tmp_path / "fading.py").write_text(module)
    (tmp_path / "space.yaml").write_text(example)
    (tmp_path / "study.yaml").write_text(
        "resnas: 1\nspace: space.yaml\ntask: {khop: {length: 16, max_hops: 2}}\n"
        "budget: {steps: 4, batch_size: 4, validations: 1, validation_batches: 1, measure_at: [1.0]}\n"
        "search: {sampler: grid, n_trials: 4}\n"
    )
    for arguments in (["check", "study.yaml"], ["search", "study.yaml"], ["status", "study.yaml", "--format", "csv"]):
        done = subprocess.run(
            [sys.executable, ROOT / "cli.py", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.count("fading:Fading") >= 3
    assert (tmp_path / "study" / "report.html").exists()


def test_the_example_topology_fades():
    namespace: dict = {}
    exec(example_topology().replace("class Fading(Topology)", "class Fading(Topology, frozen=True)"), namespace)
    rule = namespace["FadingRule"](3, 2, 0.5)
    stream = rule.start(torch.ones(1, 2))
    reads = [stream.read()]
    for _ in range(2):
        stream.write(torch.ones(1, 2))
        reads.append(stream.read())
    assert [float(read[0, 0]) for read in reads] == [1.0, 1.5, 1.75]


def test_the_example_space_loads(tmp_path):
    from resnas import SearchSpace

    (tmp_path / "space.yaml").write_text(blocks("yaml")[0])
    assert len(SearchSpace.load(tmp_path / "space.yaml").parameters) == 8


@pytest.mark.slow
def test_what_was_found_can_be_used(finished_study, tmp_path):
    """The block of commands, on a small study under the quickstart's name, then the block that loads the model."""
    (tmp_path / "studies").mkdir()
    for path in (finished_study.path, finished_study.path.with_name("space.yaml")):
        shutil.copy(path, tmp_path / "studies" / path.name.replace("small", "quickstart"))
    commands = next(block for block in blocks("sh") if "cli.py export" in block).replace("cli.py", str(ROOT / "cli.py"))
    commands = commands.replace("--steps 3000", "--steps 8").replace("python ", f"{sys.executable} ")
    commands = f"set -e\n{sys.executable} {ROOT / 'cli.py'} search\n{commands}"
    done = subprocess.run(["bash", "-c", commands], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name.partition("-")[2] for path in (tmp_path / "studies" / "quickstart" / "trained").iterdir()}
    assert names == {"8steps-seed0", "6steps-seed1"}
    section = README.split("## Use what was found")[1].split("\n## ")[0]
    files = set(re.findall(r"^\| `([\w.]+)` \|", section, flags=re.MULTILINE))
    assert {path.name for path in (tmp_path / "found").iterdir()} == files
    (load,) = [block for block in blocks("python") if "load_exported" in block]
    shown = subprocess.run(
        [sys.executable, "-c", f"{load}\nprint(model.architecture.key)"], cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.stdout.strip() in {
        path.name[:10] for path in (tmp_path / "studies" / "quickstart" / "trained").iterdir()
    }


def test_links_to_files_exist():
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", README) + re.findall(
        r"`((?:resnas|tests|search_spaces)/[\w/]+\.\w+)`", README
    ):
        assert (ROOT / target).exists(), target
