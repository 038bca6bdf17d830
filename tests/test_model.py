"""The stack: costs known beforehand, causality, norm placements against written-out loops, identities between
topologies."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from resnas import cost
from resnas.architecture import Architecture
from resnas.model import Model, RMSNorm, loss_function, root_mean_square_normalised, through_post_norms
from resnas.residual import TOPOLOGIES
from resnas.tasks.task import TaskShape

TOKENS = TaskShape("tokens", input_size=11, context=6, outputs=7, causal=True, pooled=False)
PATCHES = TaskShape("patches", input_size=3, context=4, outputs=5, causal=False, pooled=True)
RESIDUALS = [
    "fixed",
    "scalar_learned",
    {"scalar_learned": {"per_channel": True}},
    "full_depth_attention",
    {"full_depth_attention": {"key_norm": "none"}},
    {"windowed_depth_attention": {"window": 2}},
    {"windowed_depth_attention": {"window": 2, "old_sources": "remainder", "keep_embedding": False}},
]


def made(shape=TOKENS, seed=0, scramble=False, **options) -> Model:
    torch.manual_seed(seed)
    model = Model(Architecture(**{"depth": 3, "width": 8, "heads": 2} | options), shape).double()
    for sublayer in model.sublayers:
        if sublayer.branch.__class__.__name__ == "Attention" and sublayer.branch.rotary is not None:
            sublayer.branch.rotary.double()
    if scramble:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def batch(shape=TOKENS, examples=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    size = (examples, shape.context)
    inputs = (
        torch.randint(shape.input_size, size, generator=generator)
        if shape.inputs == "tokens"
        else torch.randn(*size, shape.input_size, generator=generator, dtype=torch.float64)
    )
    return inputs, torch.randint(shape.outputs, size[:1] if shape.pooled else size, generator=generator)


architectures = st.builds(
    Architecture,
    depth=st.integers(1, 3),
    width=st.sampled_from([8, 24]),
    heads=st.sampled_from([1, 2, 4]),
    mlp=st.sampled_from(["gelu", "swiglu"]),
    mlp_ratio=st.sampled_from([1.0, 2.5, 4.0]),
    positions=st.sampled_from(["rope", "learned"]),
    norm=st.sampled_from(["pre", "post", "sandwich"]),
    branch_scale=st.sampled_from(["none", "1/sqrt(layer)"]),
    residual=st.sampled_from(RESIDUALS),
)


@settings(max_examples=60)
@given(architectures, st.sampled_from([TOKENS, PATCHES]))
def test_cost_in_closed_form_equals_the_model_on_the_meta_device(architecture, shape):
    with torch.device("meta"):
        model = Model(architecture, shape)
        inputs = torch.zeros(2, shape.context, *([shape.input_size] if shape.inputs == "patches" else []))
    assert sum(parameter.numel() for parameter in model.parameters()) == cost.parameters(architecture, shape)
    counter = FlopCounterMode(display=False)
    fixed = Model(architecture.model_copy(update={"residual": TOPOLOGIES["fixed"]()}), shape).to("meta")
    with counter, torch.no_grad():
        fixed(inputs if shape.inputs == "patches" else inputs.long())
    mixing = architecture.residual.mixing_flops(architecture.sublayers, architecture.width) * shape.context
    assert counter.get_total_flops() == 2 * (cost.flops(architecture, shape) - mixing)


@pytest.mark.parametrize("residual", RESIDUALS, ids=str)
@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize(("shape", "causal"), [(TOKENS, True), (TaskShape("tokens", 11, 6, 7, False, False), False)])
def test_decoder_sees_no_later_token_and_encoder_does(residual, positions, shape, causal):
    model = made(shape, residual=residual, positions=positions, scramble=True)
    embedded = torch.randn(1, shape.context, 8, dtype=torch.float64, requires_grad=True)
    model.embedding = torch.nn.Identity()
    gradient = torch.autograd.grad(model(embedded)[0, 2].sum(), embedded)[0][0].abs().amax(-1)
    assert (gradient[:3] > 0).all()
    assert (gradient[3:] == 0).all() if causal else (gradient[3:] > 0).all()


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_fixed_stream_is_the_loop_of_the_textbook(norm):
    model = made(norm=norm, scramble=True)
    inputs, _ = batch()

    def normed(x):
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-12)

    h = model.embedding(inputs)
    h = normed(h) if norm == "post" else h
    for sublayer in model.sublayers:
        branch = sublayer.branch
        if norm == "post":
            h = normed(h + branch(h))
        elif norm == "pre":
            h = h + branch(normed(h) * sublayer.norm_before.weight)
        else:
            h = h + normed(branch(normed(h) * sublayer.norm_before.weight)) * sublayer.norm_after.weight
    expected = model.head(normed(h) * model.final_norm.weight)
    torch.testing.assert_close(model(inputs), expected, rtol=1e-10, atol=1e-10)


def test_branch_scale_divides_what_is_consumed_by_the_square_root_of_the_layer():
    model = made(branch_scale="1/sqrt(layer)")
    assert [sublayer.scale for sublayer in model.sublayers] == pytest.approx([1, 1, 2**-0.5, 2**-0.5, 3**-0.5, 3**-0.5])
    read = torch.randn(1, 6, 8, dtype=torch.float64)
    sublayer = model.sublayers[4]
    torch.testing.assert_close(sublayer(read), sublayer.branch(sublayer.norm_before(read) / 3**0.5))


def loss_and_gradients(model):
    inputs, targets = batch()
    loss = loss_function(model(inputs), targets)
    shared = [(name, p) for name, p in model.named_parameters() if not name.startswith("residual")]
    gradients = torch.autograd.grad(loss, [p for _, p in shared])
    return loss, dict(zip((name for name, _ in shared), gradients, strict=True))


def same_start(residual, **options):
    """Return a model with the shared weights of the fixed one, and a fixed one."""
    fixed, model = made(scramble=True, **options), made(residual=residual, **options)
    model.load_state_dict(fixed.state_dict(), strict=False)
    return fixed, model


@pytest.mark.parametrize(
    "residual",
    [
        "scalar_learned",
        "full_depth_attention",
        {"windowed_depth_attention": {"window": 2, "old_sources": "remainder"}},
        {"windowed_depth_attention": {"window": 2, "old_sources": "remainder", "keep_embedding": False}},
    ],
    ids=str,
)
@pytest.mark.parametrize("norm", ["pre", "sandwich"])
def test_what_starts_as_prenorm_has_its_loss_and_gradients(residual, norm):
    fixed, model = same_start(residual, norm=norm)
    (loss, gradients), (expected_loss, expected) = loss_and_gradients(model), loss_and_gradients(fixed)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-8, atol=1e-8)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-7, atol=1e-8)


def test_plain_window_does_not_start_as_prenorm():
    fixed, model = same_start({"windowed_depth_attention": {"window": 2}})
    assert abs(loss_and_gradients(model)[0] - loss_and_gradients(fixed)[0]) > 1e-4


def test_norm_epsilon_keeps_small_reads_scale_free():
    """A mean of 64 sources of size 0.02 is normalised as well as their sum; a usual epsilon would not do it."""
    mean = 0.02 / 64 * torch.randn(100, 32)
    ours = RMSNorm(32)(mean)
    torch.testing.assert_close(ours, RMSNorm(32)(64 * mean), rtol=1e-4, atol=1e-4)
    usual = torch.nn.RMSNorm(32, eps=1e-6)(mean)
    assert (usual - ours).abs().max() > 0.1


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
@pytest.mark.parametrize("residual", RESIDUALS, ids=str)
def test_trace_accounts_for_every_read(norm, residual):
    """The reads are the matrix times the outputs, also where norms stand after the sum."""
    model = made(norm=norm, residual=residual, scramble=True)
    logits, trace = model.trace(batch()[0])
    assert torch.equal(logits, model(batch()[0]))
    outputs = [output.flatten(0, 1) for output in trace.outputs]
    assert (len(outputs), len(trace.reads), len(trace.matrix)) == (7, 6, 7)
    for read, row in zip(trace.reads, trace.matrix, strict=False):
        mixed = sum(row[:, i] * outputs[i] for i in range(row.shape[1]))
        torch.testing.assert_close(mixed, read.flatten(0, 1), rtol=1e-9, atol=1e-9)


def test_post_norm_weights_of_the_fixed_stream_are_products_of_scales():
    scales = [torch.rand(4, 1, dtype=torch.float64) + 0.5 for _ in range(3)]
    ones = [torch.ones(1, read, 1, dtype=torch.float64) for read in range(1, 5)]
    for row in through_post_norms(ones, scales):
        read = row.shape[1]
        for source in range(read):
            product = torch.ones(4, 1, dtype=torch.float64)
            for scale in scales[source : read - 1]:
                product = product * scale
            torch.testing.assert_close(row[:, source], product)


def test_masked_targets_do_not_count():
    inputs, targets = batch()
    logits = made()(inputs)
    masked = targets.clone()
    masked[:, 3:] = -100
    torch.testing.assert_close(loss_function(logits, masked), loss_function(logits[:, :3], targets[:, :3]))


def test_rotary_attention_depends_on_distances_only():
    """Shifting all positions by the same amount leaves query-key products unchanged."""
    from resnas.model import RotaryPositions

    rotary = RotaryPositions(context=16, features=8).double()
    query, key = torch.randn(2, 8, dtype=torch.float64)

    def product(i, j):
        def at(vector, position):
            padded = torch.zeros(1, 1, 16, 8, dtype=torch.float64)
            padded[0, 0, position] = vector
            return rotary(padded)[0, 0, position]

        return at(query, i) @ at(key, j)

    for (i, j), shift in itertools.product([(3, 1), (7, 7), (2, 5)], [1, 4, 8]):
        torch.testing.assert_close(product(i, j), product(i + shift, j + shift), rtol=1e-5, atol=1e-6)


def test_initial_sizes_follow_the_field():
    model = Model(Architecture(depth=8, width=256), TOKENS)
    deviation = (2 / (5 * 256)) ** 0.5
    assert model.embedding.weight.detach().std() == pytest.approx(deviation, rel=0.1)
    assert model.sublayers[1].branch.input.weight.detach().std() == pytest.approx(deviation, rel=0.02)
    assert model.sublayers[1].branch.output.weight.detach().std() == pytest.approx(deviation / 16**0.5, rel=0.02)
    scaled = Model(Architecture(depth=8, width=256, branch_scale="1/sqrt(layer)"), TOKENS)
    assert scaled.sublayers[1].branch.output.weight.detach().std() == pytest.approx(deviation, rel=0.02)


def test_root_mean_square_normalised_has_size_one():
    x = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(root_mean_square_normalised(x).square().mean(-1), torch.ones(5, dtype=torch.float64))
