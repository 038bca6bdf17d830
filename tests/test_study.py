import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from resnas.errors import InputError
from resnas.space import Choices
from resnas.study import Budget, Study, changes, derive_seed
from resnas.tasks import TASKS, Task
from resnas.tasks.task import TaskShape

ROOT = Path(__file__).parents[1]

SPACE = """\
resnas: 1
architecture:
  depth: [2, 4]
  residual: [fixed, {windowed_depth_attention: {window: [2, 4]}}]
training:
  learning_rate: {low: 1e-3, high: 1e-2, log: true}
"""
STUDY = """\
resnas: 1
space: spaces/small.yaml
task:
  text: {context: 32}
budget:
  steps: 20
  measure_at: [0.5, 1.0]
objectives: val_loss
search:
  sampler: tpe
  n_trials: 8
ranking:
  targets: [dilution, val_loss]
"""


class Coin(Task):
    """A task of a user."""

    metric_directions: ClassVar = {"heads_share": "maximize"}

    sides: int = 2
    """Sides of the coin."""

    def shape(self) -> TaskShape:
        return TaskShape("tokens", self.sides, 8, outputs=self.sides, causal=True, pooled=False)


@pytest.fixture
def load(tmp_path):
    """Return a function that loads the study with one passage replaced, and with overrides."""
    (tmp_path / "spaces").mkdir()
    (tmp_path / "spaces" / "small.yaml").write_text(SPACE)

    def load_changed(old: str = "", new: str = "", overrides: tuple[str, ...] = ()) -> Study:
        assert not old or STUDY.count(old) == 1
        (tmp_path / "first_look.yaml").write_text(STUDY.replace(old, new) if old else STUDY)
        return Study.load(tmp_path / "first_look.yaml", overrides)

    return load_changed


def test_a_study_knows_its_space_task_name_and_folder(load, tmp_path):
    study = load()
    assert study.name == "first_look"
    assert study.path == tmp_path / "first_look.yaml"
    assert study.results_folder == tmp_path / "first_look"
    assert study.task == TASKS["text"](context=32)
    assert type(study.task) is TASKS["text"]
    assert study.task_name == "text"
    assert study.search_space.parameters["architecture.depth"] == Choices((2, 4))
    assert study.objectives == {"val_loss": "minimize"}
    assert (study.search.pruner, study.search.workers, study.storage) == ("none", None, None)
    with pytest.raises(ValidationError, match="frozen"):
        study.storage = "sqlite:///x.db"


def test_left_out_sections_have_their_defaults(load):
    text = STUDY[: STUDY.index("budget")]
    study = load(STUDY, text)
    assert study.budget == Budget()
    assert study.objectives == {"val_loss": "minimize"}
    assert study.ranking.targets == ["dilution", "val_loss"]


@pytest.mark.parametrize(
    ("written", "objectives"),
    [
        ("dilution", {"dilution": "minimize"}),
        ("[effective_depth, bits_per_byte]", {"effective_depth": "maximize", "bits_per_byte": "minimize"}),
        ("{val_loss: maximize}", {"val_loss": "maximize"}),
        ("{late_share: , val_loss: minimize}", {"late_share": "maximize", "val_loss": "minimize"}),
    ],
)
def test_objectives_take_the_direction_of_their_metric(load, written, objectives):
    assert load("objectives: val_loss", f"objectives: {written}").objectives == objectives


def test_a_task_may_be_a_bare_name_or_a_dotted_path(load):
    task = "task:\n  text: {context: 32}\n"
    assert load(task, "task: khop\n").task == TASKS["khop"]()
    study = load(task, f"task: {{'{__name__}:Coin': {{sides: 3}}}}\n", ("objectives=heads_share",))
    assert study.task == Coin(sides=3)
    assert study.task_name == f"{__name__}:Coin"
    assert study.objectives == {"heads_share": "maximize"}
    assert not hasattr(Coin, "owner"), "the class of the user must stay as it was"


def test_overrides_go_to_the_space_or_to_the_study(load):
    study = load(
        overrides=(
            "architecture.depth=6",
            "training.learning_rate=[1e-3, 1e-2]",
            "constraints.max_parameters=1e5",
            "architecture.residual.windowed_depth_attention.window=3",
            "search.sampler=grid",
            "task.text.context=16",
            "budget.steps=7",
        )
    )
    assert study.search_space.count() == 2 * 2
    assert study.search_space.constraints.max_parameters == 100_000
    assert (study.search.sampler, study.task.context, study.budget.steps) == ("grid", 16, 7)


def test_the_fingerprint_holds_what_makes_trials_comparable(load):
    before = load()
    same = load(overrides=("search.n_trials=99", "search.workers=3", "search.trial_timeout_s=5"))
    assert same.fingerprint() == before.fingerprint()
    assert json.loads(json.dumps(before.fingerprint())) == before.fingerprint()
    after = load(
        overrides=(
            "architecture.depth=[2, 8]",
            "architecture.residual.windowed_depth_attention.window=2",
            "task.text.context=16",
            "budget.steps=7",
            "objectives=[val_loss, dilution]",
        )
    )
    assert changes(before.fingerprint(), after.fingerprint()) == [
        "architecture.depth: [2, 4] → [2, 8]",
        "architecture.residual.windowed_depth_attention.window: [2, 4] → 2",
        "task.text.context: 32 → 16",
        "budget.steps: 20 → 7",
        "objectives.dilution: (absent) → minimize",
    ]


def test_a_variant_that_comes_goes_or_moves_is_a_change(load):
    before = load().fingerprint()
    moved = load(
        overrides=("architecture.residual=[{windowed_depth_attention: {window: [2, 4]}}, fixed]",)
    ).fingerprint()
    assert changes(before, moved) == [
        "architecture.residual: [fixed, windowed_depth_attention] → [windowed_depth_attention, fixed]"
    ]
    fewer = load(overrides=("architecture.residual=[fixed]",)).fingerprint()
    assert changes(before, fewer)[:3] == [
        "architecture.residual: [fixed, windowed_depth_attention] → [fixed]",
        "architecture.residual.windowed_depth_attention.key_norm: rms → (absent)",
        "architecture.residual.windowed_depth_attention.window: [2, 4] → (absent)",
    ]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
mappings = st.dictionaries(st.text("xyz", min_size=1, max_size=2), plain, max_size=4)


@given(mappings, mappings)
def test_there_is_a_line_exactly_where_something_changed(before, after):
    assert changes(before, json.loads(json.dumps(before))) == []
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (changes(before, after) == []) == same


@given(mappings, st.sampled_from(["x", "y"]), st.integers(0, 9))
def test_a_changed_leaf_is_a_line(values, key, value):
    before = {key: value} | {name: item for name, item in values.items() if name != key}
    after = before | {key: value + 1}
    assert changes(before, after) == [f"{key}: {value} → {value + 1}"]


def test_true_and_one_differ():
    assert changes({"a": True}, {"a": 1}) == ["a: true → 1"]


def test_seeds_depend_on_every_part_and_on_nothing_else():
    seeds = [derive_seed(0, key, replicate) for key in ("a", "b", "1") for replicate in range(50)]
    seeds += [derive_seed(1, "a", 0), derive_seed(0, "a"), derive_seed("0", "a", 0), derive_seed(0, 1, 0)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert max(seeds) > 2**30, "all 31 bits are used"
    code = "from resnas.study import derive_seed; print(derive_seed(0, 'a', 0))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) == derive_seed(0, "a", 0)


def test_a_seed_is_the_head_of_sha256():
    # printf '[0,"a",0]' | sha256sum → b7c11723…
    assert derive_seed(0, "a", 0) == 0xB7C11723 >> 1


TASK = "text: {context: 32}"
BAD = [
    ("n_trials: 8", "n_trials: 0", [":11: search.n_trials", "a whole number of at least 1", "not 0"]),
    ("n_trials: 8", "trials: 8", [":11: search.trials", "unknown key 'trials'", "known: workers", "mean 'n_trials'?"]),
    ("sampler: tpe", "sampler: tp", [":10: search.sampler", "'tpe', 'random', 'grid' or 'nsga2'", "not 'tp'"]),
    ("sampler: tpe", "sampler: grid", [":10: search.sampler", "discrete space", "training.learning_rate"]),
    ("sampler: tpe", "memory_limit_gib: 0", [":10: search.memory_limit_gib", "a number above 0 or null", "not 0"]),
    ("sampler: tpe", "random_share: 40", [":10: search.random_share", "a number from 0 to 1", "not 40"]),
    (
        "objectives: val_loss\nsearch:",
        "objectives: [val_loss, dilution]\nsearch:\n  pruner: asha",
        [":10: search.pruner", "'asha' needs exactly one objective, not 2 (val_loss, dilution)"],
    ),
    ("objectives: val_loss", "objectives: val_los", [":8: objectives.val_los", "unknown metric", "mean 'val_loss'?"]),
    ("objectives: val_loss", "objectives: accuracy", [":8: objectives.accuracy", "unknown metric", "bits_per_byte"]),
    (
        "objectives: val_loss",
        "objectives: {val_loss: min}",
        [":8: objectives.val_loss", "'minimize' or 'maximize'", "'min'"],
    ),
    ("objectives: val_loss", "objectives: [dilution, dilution]", [":8: objectives", "'dilution' is given twice"]),
    ("objectives: val_loss", "objectives: []", [":8: objectives", "a name or a list of names", "not []"]),
    ("objectives: val_loss", "objectives: {}", [":8: objectives", "at least one metric"]),
    ("objectives: val_loss", "objectives: 3", [":8: objectives", "a name or a list of names", "not 3"]),
    ("[dilution, val_loss]", "[dilutio]", [":13: ranking.targets", "unknown metric 'dilutio'", "mean 'dilution'?"]),
    (TASK, "txt: {context: 32}", [":4: task.txt", "unknown task 'txt'", "known: text, digits, khop", "mean 'text'?"]),
    (TASK, "text: {contxt: 32}", [":4: task.text.contxt", "options of text: corpus, context", "mean 'context'?"]),
    (TASK, "text: {patch: 2}", [":4: task.text.patch", "'patch' is an option of digits"]),
    (TASK, "text: {context: 0}", [":4: task.text.context", "a whole number of at least 1", "not 0"]),
    (TASK, "text: {corpus: 3}", [":4: task.text.corpus", "text", "not 3"]),
    (TASK, "khop: {max_hops: 60}", [":4: task.khop", "max_hops 60 is too large"]),
    (TASK, "no_such_package:Task", [":3: task", "cannot import the task", "No module named 'no_such_package'"]),
    (f"task:\n  {TASK}\n", "", ["first_look.yaml: task", "is missing", "text, digits, khop"]),
    ("space: spaces/small.yaml\n", "", ["first_look.yaml: space", "is missing", "relative to this file"]),
    ("small.yaml", "smal.yaml", [":2: space", "no file", "smal.yaml", "relative to the study file"]),
    ("[0.5, 1.0]", "[0.5, 0.75]", [":7: budget.measure_at", "end with 1.0", "not [0.5, 0.75]"]),
    ("[0.5, 1.0]", "[0.5, 0.25, 1.0]", [":7: budget.measure_at", "rise"]),
    ("[0.5, 1.0]", "[0, 1.0]", [":7: budget.measure_at", "above 0"]),
    ("[0.5, 1.0]", "[]", [":7: budget.measure_at", "not []"]),
    ("steps: 20", "steps: 3", ["budget.validations", "4 validations do not fit into 3 steps"]),
    ("budget:", "budgt:", [":5: budgt", "unknown key 'budgt'", "mean 'budget'?"]),
    ("resnas: 1", "resnas: '1'", [":1: resnas", "must be 1", "format version", "not '1'"]),
]


@pytest.mark.parametrize(
    ("old", "new", "parts"), BAD, ids=[f"{number}-{new[:30]}" for number, (_, new, _) in enumerate(BAD)]
)
def test_a_bad_study_is_one_sentence_with_place_and_remedy(load, old, new, parts):
    with pytest.raises(InputError) as caught:
        load(old, new)
    message = str(caught.value)
    assert "first_look.yaml" in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_problems_of_the_space_are_placed_in_the_space(load, tmp_path):
    with pytest.raises(InputError, match=r"^--set architecture\.dept=3: architecture\.dept: unknown key 'dept'"):
        load(overrides=("architecture.dept=3",))
    (tmp_path / "spaces" / "small.yaml").write_text(SPACE.replace("[2, 4]\n", "[]\n"))
    with pytest.raises(InputError, match=r"small\.yaml:3: architecture\.depth: has no choices"):
        load()


def test_a_bad_setting_of_the_study_is_named(load):
    with pytest.raises(InputError, match=r"^--set search\.n_trials=many: search\.n_trials: must be a whole number"):
        load(overrides=("search.n_trials=many",))


def test_a_space_given_as_a_study_is_explained(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SPACE)
    with pytest.raises(InputError, match=r"small\.yaml:2: .*is a search space, not a study; .*'space: small\.yaml'"):
        Study.load(path)
