"""What is claimed and which two architectures test it: one option differs, and all else that moves is said."""

import itertools
from dataclasses import replace

import pytest

from resnas import cost
from resnas.architecture import PROPERTIES, Architecture
from resnas.confirm.change import Material, NotTestable, differing, find_change, own_option, with_option
from resnas.confirm.claims import Claim, leading_claims, named_claim
from resnas.confirm.matching import COSTS, matched
from resnas.errors import InputError
from resnas.ranking import CONSTANT, NOT_SEPARABLE, SUGGESTIVE, SUPPORTED, LevelMean, PropertyEffect, Ranking
from resnas.ranking.effects import NO_DIRECTION
from resnas.ranking.result import Interaction
from resnas.space import SearchSpace
from resnas.tasks import TASKS
from resnas.yaml_file import parse_yaml

SPACE = """
resnas: 1
architecture:
  depth: [2, 4, 6]
  width: 32
  heads: 2
  norm: [pre, sandwich]
  residual:
    - fixed
    - scalar_learned: {per_channel: [false, true]}
    - windowed_depth_attention:
        {window: [1, 2, 4], keep_embedding: [true, false], old_sources: [drop, remainder], key_norm: [rms, none]}
    - full_depth_attention: {key_norm: [rms, none]}
training:
  learning_rate: {low: 1e-3, high: 1e-2, log: true}
  mixing_lr_multiplier: [1, 3, 10]
"""
SHAPE = TASKS["khop"](length=16, max_hops=2).shape()
RESIDUALS = [
    {"windowed_depth_attention": {"window": 2}},
    {"fixed": {}},
    {"scalar_learned": {"per_channel": True}},
    {"full_depth_attention": {"key_norm": "none"}},
]


@pytest.fixture(scope="module")
def material():
    space = SearchSpace.from_document(parse_yaml(SPACE, "space.yaml"))
    found = [Architecture(depth=4, width=32, heads=2, residual=residual) for residual in RESIDUALS]
    return Material(found, space, SHAPE)


def claim(name, before, after, target="dilution", direction=-1, effect=-0.4):
    return Claim(name, before, after, target, direction, effect)


TESTED = [
    ("family", "fixed", "full_depth_attention", "architecture.residual"),
    ("weights_learned", False, True, "architecture.residual"),
    ("token_dependent", False, True, "architecture.residual"),
    ("normalised", False, True, "architecture.residual"),
    ("sources_per_read", 2.5, 4.9, "architecture.residual.windowed_depth_attention.window"),
    ("reach", 0.5, 0.9, "architecture.residual.windowed_depth_attention.window"),
    ("embedding_kept", True, False, "architecture.residual.windowed_depth_attention.keep_embedding"),
    ("old_sources", "dropped", "pooled", "architecture.residual.windowed_depth_attention.old_sources"),
    ("old_sources", "dropped", "kept", "architecture.residual"),
    ("key_norm", "rms", "none", "architecture.residual.windowed_depth_attention.key_norm"),
    ("key_norm", None, "none", "architecture.residual"),
    ("window_sources", 1, 4, "architecture.residual.windowed_depth_attention.window"),
    ("per_channel", True, False, "architecture.residual.scalar_learned.per_channel"),
    ("mixing_parameters", 0, 250, "architecture.residual"),
    ("depth", 2, 6, "architecture.depth"),
    ("norm", "pre", "sandwich", "architecture.norm"),
    ("mlp_ratio", 2.0, 4.0, "architecture.mlp_ratio"),
    ("learning_rate", 1e-3, 1e-2, "training.learning_rate"),
    ("mixing_lr_multiplier", 1.0, 10.0, "training.mixing_lr_multiplier"),
]


@pytest.mark.parametrize(("name", "before", "after", "option"), TESTED)
def test_only_the_option_behind_the_property_differs(material, name, before, after, option):
    change = find_change(claim(name, before, after), material)
    assert change.option == option
    assert differing(change.base, change.changed) == [option]
    ours, theirs = change.base.model_dump(), change.changed.model_dump()
    part = option.split(".")[0 if option.startswith("training") else 1]
    assert {key: value for key, value in ours.items() if key != part} == {
        key: value for key, value in theirs.items() if key != part
    }
    assert change.before == change.base.properties()[name] != change.after == change.changed.properties()[name]
    both = [one.properties() for one in (change.base, change.changed)]
    moved = {other for other in both[0] | both[1] if both[0].get(other) != both[1].get(other)}
    assert set(change.moved_along) == moved - {name}
    if not isinstance(before, float) and name != "mixing_parameters":
        assert (change.before, change.after) == (before, after)
    else:
        assert (change.after > change.before) == (after > before)


def test_every_property_is_either_set_by_an_option_of_its_own_or_tested_through_the_topology():
    own = {name for name in PROPERTIES if own_option(name) is not None}
    assert {PROPERTIES[name].option for name in own} == {own_option(name) for name in own}
    tested = {name for name, *_ in TESTED}
    assert set(PROPERTIES) - own <= tested


def test_the_best_architecture_that_can_be_changed_is_the_base(material):
    assert find_change(claim("depth", 2, 6), material).base.family == "windowed_depth_attention"
    assert find_change(claim("per_channel", True, False), material).base.depth == 4
    learned = Material(material.architectures[1:], material.space, SHAPE)
    change = find_change(claim("mixing_lr_multiplier", 1.0, 10.0), learned)  # does not apply to `fixed`
    assert change.base.family == "scalar_learned"


def test_a_change_that_would_also_change_the_family_is_avoided(material):
    """A window of four sources is full attention in one layer."""
    wide = with_option(material.architectures[0], "architecture.residual", {"windowed_depth_attention": {"window": 4}})
    assert find_change(claim("depth", 1, 4), Material([wide], material.space, SHAPE)).moved_along.count("family") == 1
    both = Material([wide, material.architectures[1]], material.space, SHAPE)
    assert find_change(claim("depth", 1, 4), both).base.family == "fixed"


@pytest.mark.parametrize(
    ("name", "before", "after"), [("old_sources", "kept", "burnt"), ("heads", 2, 5), ("reach", 1.0, 2.0)]
)
def test_what_no_option_makes_is_refused(material, name, before, after):
    with pytest.raises(NotTestable, match=f"{name}: .* no change of one option"):
        find_change(claim(name, before, after), material)


def test_an_architecture_beyond_a_constraint_is_no_arm(material):
    limit = cost.parameters(material.architectures[0], SHAPE) + 100
    space = SearchSpace.from_document(
        parse_yaml(f"{SPACE}constraints: {{max_parameters: {limit}}}\n", "space.yaml")
    )  # queries of full attention fit in, numbers per channel do not
    limited = Material(material.architectures[1:2], space, SHAPE)
    assert find_change(claim("family", "fixed", "full_depth_attention"), limited).changed.family != "fixed"
    with pytest.raises(NotTestable):
        find_change(claim("per_channel", None, True), limited)
    free = Material(limited.architectures, material.space, SHAPE)
    assert find_change(claim("per_channel", None, True), free).changed.residual.per_channel
    with pytest.raises(NotTestable):
        find_change(claim("depth", 2, 6), limited)


def test_a_value_that_an_option_cannot_have_is_wrong_input(material):
    with pytest.raises(InputError, match="--claim norm"):
        find_change(claim("norm", "pre", "batch"), material)


@pytest.mark.parametrize(
    ("quantity", "change"),
    list(
        itertools.product(COSTS, [("architecture.depth", 6), ("architecture.mlp", "swiglu"), ("architecture.depth", 3)])
    ),
)
def test_matched_architectures_cost_the_same_and_differ_only_in_the_change_and_the_ratio(quantity, change):
    base = Architecture(depth=4, width=32, heads=2)
    changed = with_option(base, *change)
    equal = matched(base, changed, SHAPE, quantity)
    count = {"parameters": cost.parameters, "flops": cost.flops}[quantity]
    assert count(equal, SHAPE) == pytest.approx(count(base, SHAPE), rel=0.01)
    assert set(differing(base, equal)) <= {change[0], "architecture.mlp_ratio"}
    assert with_option(equal, "architecture.mlp_ratio", changed.mlp_ratio) == changed


def test_what_cannot_be_matched_is_refused():
    base = Architecture(depth=1, width=32, heads=2)
    with pytest.raises(NotTestable, match="cannot be made equal within 1%"):
        matched(base, with_option(base, "architecture.depth", 20), SHAPE, "parameters")
    with pytest.raises(NotTestable, match="mlp_ratio is itself"):
        matched(base, with_option(base, "architecture.mlp_ratio", 2.0), SHAPE, "flops")


def effect(name, verdict, direction, size=(0.4, 0.3, 0.5), partners=(), importance=0.1):
    return PropertyEffect(name, importance, 0.05, 0.2, *size, direction, 0.01, verdict, 40, partners)


def ranking(*effects, reliable=True):
    refusal = None if reliable else "no reliable ranking: too few"
    numbers = (0, 40, 40, 0, 0.5, 0.4, 0.6, 0.01, None)
    return Ranking("dilution", *numbers, reliable, refusal, effects)


ROWS = [
    {"family": family, "depth": depth, "reach": 1.0, "weights_learned": family != "fixed", "norm": "pre",
     "dilution": 1.0 - 0.5 * (family != "fixed") + depth / 100}
    for family in ("fixed", "full_depth_attention") for depth in range(2, 22)
]  # fmt: skip


def test_leading_claims_are_supported_ones_then_suggestive_ones_and_one_a_group():
    found = leading_claims(
        ranking(
            effect("norm", NOT_SEPARABLE, NO_DIRECTION),
            effect("depth", SUGGESTIVE, "higher raises dilution"),
            effect("weights_learned", SUPPORTED, "true lowers dilution", (-0.5, -0.6, -0.4), ("family",)),
            effect(
                "family", SUPPORTED, "lowest with full_depth_attention, highest with fixed",
                partners=("weights_learned",),
            ),
            effect("reach", CONSTANT, "not varied"),
        ),
        ROWS, "minimize", 3,
    )  # fmt: skip
    first, second = found
    assert (first.subject, first.before, first.after) == ("family", "fixed", "full_depth_attention")
    assert (first.direction, first.effect, first.effect_low, first.effect_high) == (-1, -0.4, -0.5, -0.3)
    assert first.together_with == ("weights_learned",)
    assert (second.subject, second.before, second.after, second.direction) == ("depth", 3, 20, 1)
    assert leading_claims(ranking(effect("depth", SUPPORTED, "higher raises dilution"), reliable=False), ROWS,
                          "minimize", 3) == []  # fmt: skip


def test_a_claim_names_what_its_effect_depends_on():
    one = ranking(
        effect("family", SUPPORTED, "lowest with full_depth_attention, highest with fixed", partners=("reach",)),
        effect("depth", SUGGESTIVE, "higher raises dilution"),
    )
    pairs = [("norm", "reach", SUGGESTIVE), ("family", "depth", SUPPORTED), ("family", "width", NOT_SEPARABLE)]
    one = replace(one, interactions=tuple(Interaction(*names, 0.1, 0.04, verdict) for *names, verdict in pairs))
    family, depth = leading_claims(one, ROWS, "minimize", 2)
    assert family.depends_on == ("norm", "depth")
    assert depth.depends_on == ("family",)


def test_a_change_between_names_is_told_towards_the_better_one():
    one = ranking(effect("family", SUPPORTED, "lowest with full_depth_attention, highest with fixed"))
    (found,) = leading_claims(one, ROWS, "maximize", 1)
    assert (found.before, found.after, found.direction, found.effect) == ("full_depth_attention", "fixed", 1, 0.4)


def test_a_named_claim_has_the_direction_and_the_size_of_the_ranking_as_far_as_it_speaks_of_it():
    one = ranking(
        effect("depth", SUPPORTED, "higher raises dilution", (0.34, 0.17, 0.51)),
        effect("family", SUPPORTED, "lowest with full_depth_attention, highest with fixed"),
        effect("weights_learned", NOT_SEPARABLE, NO_DIRECTION),
    )

    def named(text):
        found = named_claim(text, one, ROWS, "minimize")
        return found.before, found.after, found.direction, found.effect and round(found.effect, 6)

    assert named("depth") == (3, 20, 1, 0.34)
    assert named("depth=4..12.5") == (4, 12.5, 1, 0.17)
    assert named("depth=20..3") == (20, 3, -1, -0.34)
    assert named("family=full_depth_attention..fixed") == ("full_depth_attention", "fixed", 1, 0.4)
    assert named("family=fixed..scalar_learned") == ("fixed", "scalar_learned", 0, None)
    assert named("weights_learned") == (False, True, 0, None)
    assert named("weights_learned=true..false") == (True, False, 0, None)
    assert named("width=32..64") == (32, 64, 0, None)
    assert named("key_norm=does not apply..none") == (None, "none", 0, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dept=2..4", "unknown property 'dept'.*did you mean 'depth'"),
        ("depth=2", "must be depth=LOW..HIGH"),
        ("depth=2..", "must be depth=LOW..HIGH"),
        ("depth=2..4..6", "must be depth=LOW..HIGH"),
        ("depth=4..4", "must differ"),
        ("depth=[1]..4", "must be a number, true, false or a name"),
        ("norm", "has one value in this study; give two"),
        ("width", "has one value in this study; give two"),
    ],
)
def test_a_claim_that_cannot_be_read_is_one_sentence(text, words):
    one = ranking(effect("norm", CONSTANT, "not varied"), effect("depth", SUPPORTED, "higher raises dilution"))
    with pytest.raises(InputError, match=f"^--claim.*{words}"):
        named_claim(text, one, ROWS, "minimize")


def test_the_levels_that_the_ranking_compares_go_before_plain_means():
    levels = tuple(
        LevelMean(name, mean, None, None, 20) for name, mean in [("fixed", 0.1), ("full_depth_attention", 0.5)]
    )
    one = replace(effect("family", SUPPORTED, "lowest with fixed, highest with full_depth_attention"), levels=levels)
    (found,) = leading_claims(ranking(one), ROWS, "minimize", 1)
    assert (found.before, found.after) == ("full_depth_attention", "fixed")
