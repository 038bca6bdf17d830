"""Every kind of bad space is refused in one sentence."""

import pytest
from test_space import SPACE, changed, read

from resnas.errors import InputError
from resnas.space import Choices, SearchSpace

WINDOW = "architecture.residual.windowed_depth_attention.window"
BAD = [
    (
        "depth: [6, 12]",
        "dept: 6",
        [":3: architecture.dept", "unknown key 'dept'", "known: depth, width", "mean 'depth'?"],
    ),
    ("width: 48", "width: six", [":4: architecture.width", "a whole number of at least 1", "not 'six'"]),
    ("width: 48", "width: true", [":4: architecture.width", "a whole number of at least 1", "not true"]),
    ("width: 48", "width: 0.5", [":4: architecture.width", "a whole number of at least 1", "not 0.5"]),
    ("width: 48", "width:", [":4: architecture.width", "a whole number of at least 1", "not null"]),
    ("width: 48", "width: 50", [":4: architecture.width", "width 50 is not divisible by heads 4"]),
    (
        "width: 48",
        "width: [50, 54]",
        [":4: architecture.width", "no choice is feasible", "width 54 is not divisible by heads 4"],
    ),
    ("depth: [6, 12]", "depth: []", [":3: architecture.depth", "no choices", "at least one"]),
    ("depth: [6, 12]", "depth: [6, 12, 6]", [":3: architecture.depth", "6 is given twice"]),
    ("depth: [6, 12]", "depth: {low: 6, high: 2}", [":3: architecture.depth", "low 6 must be below high 2"]),
    ("depth: [6, 12]", "depth: {low: 6, high: 6}", [":3: architecture.depth", "low 6 must be below high 6"]),
    (
        "depth: [6, 12]",
        "depth: {low: 6}",
        [":3: architecture.depth.high", "is missing", "a whole number of at least 1"],
    ),
    ("depth: [6, 12]", "depth: {low: 6, high: 7.5}", [":3: architecture.depth.high", "a whole number", "not 7.5"]),
    (
        "depth: [6, 12]",
        "depth: {lo: 6, high: 9}",
        [":3: architecture.depth.lo", "known: low, high, step, log", "mean 'low'?"],
    ),
    ("depth: [6, 12]", "depth: 3\n  depth: 4", [":4: architecture.depth", "given twice", "line 3"]),
    ("  depth", "\tdepth", [":3", "a tab", "spaces"]),
    ("[1, 3, 10]", "[1, 3, 1.0]", [":13: training.mixing_lr_multiplier", "1.0 is given twice"]),
    (
        "[1, 3, 10]",
        "{low: 1, high: 3, step: 0}",
        [":13: training.mixing_lr_multiplier.step", "a number above 0", "not 0"],
    ),
    (
        "[1, 3, 10]",
        "{low: 1, high: 3, step: .inf}",
        [":13: training.mixing_lr_multiplier.step", "a number above 0", "not .inf"],
    ),
    ("[1, 3, 10]", "{low: 1, high: 3, step: 5}", [":13: training.mixing_lr_multiplier", "step 5.0 is larger"]),
    (
        "[1, 3, 10]",
        "{low: 1, high: 3, step: 1, log: true}",
        [":13: training.mixing_lr_multiplier", "log range cannot have a step"],
    ),
    ("[1, 3, 10]", ".nan", [":13: training.mixing_lr_multiplier", "a number above 0", "not .nan"]),
    ("low: 1e-3", "low: 0", [":12: training.learning_rate.low", "a number above 0", "not 0"]),
    (
        "[1, 3, 10]",
        "1\n  weight_decay: {low: 0, high: 1, log: true}",
        [":14: training.weight_decay", "log range needs low above 0"],
    ),
    ("[1, 3, 10]", "1\n  warmup_share: 1.5", [":14: training.warmup_share", "a number from 0 to 1", "not 1.5"]),
    (
        "training:",
        "traning:",
        [":11: traning", "unknown key 'traning'", "known: resnas, architecture", "mean 'training'?"],
    ),
    ("resnas: 1", "resnas: 2", [":1: resnas", "must be 1", "format version", "not 2"]),
    ("resnas: 1\n", "", ["x.yaml: resnas", "is missing", "give 1"]),
    ("2e6", "2.5", [":15: constraints.max_parameters", "a whole number of at least 1 or null", "not 2.5"]),
    ("max_parameters", "max_paramters", [":15: constraints.max_paramters", "mean 'max_parameters'?"]),
    (
        "- fixed",
        "- fixd",
        [":7: architecture.residual.fixd", "unknown residual topology 'fixd'", "known: fixed, scalar", "mean 'fixed'?"],
    ),
    (
        "- windowed_depth_attention:",
        "- windw:",
        [":9: architecture.residual.windw", "unknown residual topology 'windw'"],
    ),
    ("[2, 4, 8]", "0", [f":9: {WINDOW}", "a whole number of at least 1", "not 0"]),
    ("[2, 4, 8]", "[2, 0]", [f":9: {WINDOW}", "a whole number of at least 1", "not 0"]),
    ("window: [2, 4, 8], ", "", [f":9: {WINDOW}", "is missing", "a whole number of at least 1"]),
    ("- fixed", "- windowed_depth_attention", [f":7: {WINDOW}", "is missing"]),
    (
        "- fixed",
        "- fixed: {window: 3}",
        [":7: architecture.residual.fixed.window", "options of fixed: none", "an option of windowed_depth_attention"],
    ),
    (
        "{key_norm: [",
        "{keynorm: [",
        [
            ":10: architecture.residual.full_depth_attention.keynorm",
            "options of full_depth_attention: key_norm",
            "mean 'key_norm'?",
        ],
    ),
    (
        "[rms, none]",
        "[rms, null]",
        [":10: architecture.residual.full_depth_attention.key_norm", "'rms' or 'none'", "not null"],
    ),
    (
        "[rms, none]",
        "{low: 1, high: 2}",
        [":10: architecture.residual.full_depth_attention.key_norm", "'rms' or 'none'"],
    ),
    (
        "[true, false]",
        "yes",
        [":9: architecture.residual.windowed_depth_attention.keep_embedding", "true or false", "not 'yes'"],
    ),
    ("- fixed", "- scalar_learned", [":6: architecture.residual", "'scalar_learned' is given twice", "one entry"]),
    (
        "- fixed",
        "- {fixed: , full_depth_attention: }",
        [":7: architecture.residual", "must name one residual topology, not 2"],
    ),
    ("- fixed", "- {}", [":7: architecture.residual", "must name one residual topology"]),
    ("- fixed", "- 3", [":7: architecture.residual", "must be a residual topology", "not 3"]),
    ("- fixed", "- [fixed]", [":7: architecture.residual", "must be a residual topology", "not [fixed]"]),
    (
        "- fixed",
        "- no_such_package.module:Thing",
        [":7: architecture.residual", "cannot import", "No module named 'no_such_package'"],
    ),
    (
        "- fixed",
        "- resnas.architecture:Stack",
        [":7: architecture.residual", "not a residual topology", "subclass of resnas.residual"],
    ),
    (
        "architecture:",
        "architecture: 3\nx:",
        [":2: architecture", "must be a mapping (of depth", "not 3", "(and 1 more)"],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "parts"), BAD, ids=[f"{index}-{new[:30]}" for index, (_, new, _) in enumerate(BAD)]
)
def test_a_bad_space_is_one_sentence_with_place_and_remedy(old, new, parts):
    with pytest.raises(InputError) as caught:
        read(changed(old, new))
    message = str(caught.value)
    assert message.startswith("spaces/x.yaml")
    assert "\n" not in message
    assert "«" not in message
    for part in parts:
        assert part in message


def test_the_first_problem_of_the_file_is_said_and_the_others_counted():
    text = changed("depth: [6, 12]", "depth: 0").replace("1e-2", "never").replace("[rms, none]", "off")
    with pytest.raises(InputError, match=r"x\.yaml:3: architecture\.depth: .*, not 0 \(and 2 more\)$"):
        read(text)


def test_the_first_problem_is_the_first_in_the_file_not_in_the_record():
    with pytest.raises(InputError, match=r"x\.yaml:2: training\.learning_rate: .*, not 0 \(and 2 more\)$"):
        read("resnas: 1\ntraining: {learning_rate: 0}\narchitecture:\n  heads: 0\n  depth: 0\n")


def test_load_and_overrides(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    space = SearchSpace.load(path, ["architecture.depth=[2, 3, 4]", f"{WINDOW}=3"])
    assert space.parameters["architecture.depth"] == Choices((2, 3, 4))
    assert WINDOW not in space.parameters
    with pytest.raises(
        InputError, match=r"^--set architecture\.depth=six: architecture\.depth: must be a whole number"
    ):
        SearchSpace.load(path, ["architecture.depth=six"])
    with pytest.raises(InputError, match=r"^--set architecture\.dept=6: architecture\.dept: unknown key"):
        SearchSpace.load(path, ["architecture.dept=6"])
    with pytest.raises(InputError, match=r"spce\.yaml: no such file \(did you mean 'space'\?\)"):
        SearchSpace.load(tmp_path / "spce.yaml")


def test_a_study_is_no_space():
    with pytest.raises(InputError, match="is a study, not a search space"):
        read("resnas: 1\nspace: x.yaml\ntask: text")
