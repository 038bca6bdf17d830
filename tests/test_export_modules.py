"""The exported topology in plain torch equals that of resnas, and needs neither it nor anything but torch."""

import json
import os
import re
import subprocess
import sys
import types

import pytest
import torch
from test_residual import SUBLAYERS, WIDTH, assert_equal, every_topology, name_of, random_rule, value_and_gradients

from resnas.architecture import Architecture
from resnas.export.modules import TEMPLATES, filled, write_modules
from resnas.residual import TOPOLOGIES, FullDepthAttention, ScalarLearned, Topology, WindowedDepthAttention


def module_of(topology: Topology, sublayers: int = SUBLAYERS, width: int = WIDTH) -> types.ModuleType:
    """Return the module that is exported for a topology, as if imported."""
    family = next(name for name, cls in TOPOLOGIES.items() if type(topology) is cls)
    values = {"SUBLAYERS": sublayers, "WIDTH": width}
    values |= {name.upper(): value for name, value in topology.model_dump().items()}
    module = types.ModuleType("depth_mixing")
    exec(filled(f"{family}.py", values), module.__dict__)
    return module


class Reads:
    """A stream as resnas has it, over a plain module that knows only lists of sources."""

    def __init__(self, mixing, embedding):
        self.mixing, self.sources = mixing, [embedding]

    def read(self):
        return self.mixing(self.sources)

    def write(self, source):
        self.sources.append(source)


@pytest.mark.parametrize("topology", every_topology(), ids=name_of)
def test_the_exported_module_equals_the_topology_in_values_and_gradients(topology):
    rule = random_rule(topology)
    mixing = module_of(topology).DepthMixing().double()
    mixing.load_state_dict(rule.state_dict())
    expected, _ = value_and_gradients(rule.start, rule)
    found, _ = value_and_gradients(lambda embedding: Reads(mixing, embedding), mixing)
    assert_equal(found, expected)


@pytest.mark.parametrize("topology", every_topology(), ids=name_of)
def test_the_exported_module_starts_as_the_topology_does(topology):
    fresh, mixing = topology.build(SUBLAYERS, WIDTH), module_of(topology).DepthMixing()
    assert {name: tensor.tolist() for name, tensor in mixing.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in fresh.state_dict().items()
    }


def test_every_family_has_a_template_that_knows_all_its_options():
    for name, cls in TOPOLOGIES.items():
        constants = set(re.findall(r"^([A-Z_]+) = ", (TEMPLATES / f"{name}.py").read_text(), flags=re.MULTILINE))
        assert constants - {"EPSILON"} == {"SUBLAYERS", "WIDTH", *(option.upper() for option in cls.model_fields)}


def test_a_constant_that_the_template_lacks_is_an_error():
    with pytest.raises(ValueError, match="DEPTH 0 times"):
        filled("fixed.py", {"DEPTH": 3})


BLOCKED = """
import builtins, runpy, sys
before = builtins.__import__
def blocked(name, *arguments, **options):
    if name.partition(".")[0] in ("resnas", "lightning", "safetensors", "pydantic", "optuna"):
        raise ImportError("blocked: " + name)
    return before(name, *arguments, **options)
builtins.__import__ = blocked
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/example.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    "residual", [ScalarLearned(per_channel=True), WindowedDepthAttention(window=2, old_sources="remainder")], ids=str
)
def test_the_example_learns_where_resnas_cannot_be_imported(tmp_path, residual):
    write_modules(Architecture(depth=2, width=16, heads=2, residual=residual), tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"([\d.]+) nats per byte", done.stdout)]
    assert len(losses) == 5
    assert losses[-1] < losses[0] - 1
    assert "resnas" not in (tmp_path / "depth_mixing.py").read_text()
    assert "import resnas" not in (tmp_path / "example.py").read_text()


def test_the_block_of_the_test_above_blocks(tmp_path):
    (tmp_path / "example.py").write_text("import resnas")
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert "blocked: resnas" in done.stderr


OWN = """
import torch
from own_weights import WEIGHT
from resnas import Topology
from resnas.residual.rule import Rule


class Constant(Topology):
    weight: float = 1.0

    def build(self, sublayers, width):
        return ConstantRule(sublayers, width, self.weight)


class ConstantRule(Rule):
    def __init__(self, sublayers, width, weight):
        super().__init__(sublayers, width)
        self.weight = weight

    def row(self, read, sources):
        return sources[0].new_full((1, read, 1), self.weight * WEIGHT)
"""


def test_a_topology_of_ones_own_is_copied_with_what_it_needs(tmp_path, monkeypatch):
    (tmp_path / "own_rule.py").write_text(OWN)
    (tmp_path / "own_weights.py").write_text("import json, own_deepest\nfrom own_deeper import WEIGHT\n")
    (tmp_path / "own_deeper.py").write_text("WEIGHT = 0.5\n")
    (tmp_path / "own_deepest.py").write_text("")
    (tmp_path / "own_unrelated.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    architecture = Architecture(depth=2, width=4, heads=2, residual={"own_rule:Constant": {"weight": 0.5}})
    sentence = write_modules(architecture, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "own_rule.py", "own_weights.py", "own_deeper.py", "own_deepest.py",
    }  # fmt: skip
    assert (tmp_path / "out" / "own_rule.py").read_text() == OWN
    assert "resnas included" in sentence
    elsewhere = (
        "import torch; from own_rule import Constant; "
        "print(Constant(weight=0.5).build(2, 4).row(2, [torch.ones(1, 4)] * 2).flatten().tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", elsewhere], capture_output=True, text=True, cwd=tmp_path / "out", timeout=60
    )
    assert json.loads(done.stdout) == [0.25, 0.25], done.stderr


def test_a_topology_without_source_is_said_to_be_left_out(tmp_path, monkeypatch):
    module = types.ModuleType("made_up")
    exec(OWN.replace("from own_weights import WEIGHT", "WEIGHT = 1"), module.__dict__)
    monkeypatch.setitem(sys.modules, "made_up", module)
    module.Constant.__module__ = "made_up"
    architecture = Architecture(depth=2, width=4, heads=2, residual={"made_up:Constant": {}})
    sentence = write_modules(architecture, tmp_path)
    assert sentence == "The topology is not exported as a module: `made_up` has no Python source."
    assert not list(tmp_path.iterdir())


def test_the_plain_module_takes_any_leading_shape():
    mixing = module_of(FullDepthAttention()).DepthMixing()
    torch.nn.init.normal_(mixing.queries)
    sources = [torch.randn(2, 3, WIDTH) for _ in range(4)]
    flat = mixing([source.flatten(0, 1) for source in sources])
    torch.testing.assert_close(mixing(sources).flatten(0, 1), flat)
