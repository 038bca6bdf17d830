"""Contract of every topology in the registry, and the identities that tie the families together."""

import itertools
import typing
import weakref

import pytest
import torch
from definitions import read as defined_read
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from resnas.record import Count
from resnas.residual import (
    TOPOLOGIES,
    Fixed,
    FullDepthAttention,
    ScalarLearned,
    Topology,
    WindowedDepthAttention,
)
from resnas.residual.dense import BLOCK, DenseTape
from resnas.residual.rule import PlainStream, Rule
from resnas.residual.stream import TapeStream

SUBLAYERS, TOKENS, WIDTH = 10, 5, 4  # two blocks of reads


def values_of(annotation: object) -> list:
    if annotation is bool:
        return [True, False]
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    if annotation in (int, Count):
        return [1, 2, 3, SUBLAYERS, SUBLAYERS + 1]
    raise TypeError(f"the contract does not know values of {annotation}")


def every_topology() -> list[Topology]:
    made = []
    for cls in TOPOLOGIES.values():
        options = {name: values_of(field.annotation) for name, field in cls.model_fields.items()}
        made += [cls(**dict(zip(options, chosen, strict=True))) for chosen in itertools.product(*options.values())]
    return made


class Dense:
    """Takes the dense tape, which is meant for large sources, for small ones too."""

    def build(self, sublayers, width):
        rule = super().build(sublayers, width)
        rule.dense_from_elements = 0
        return rule


class DenseScalarLearned(Dense, ScalarLearned): ...


class DenseFullDepthAttention(Dense, FullDepthAttention): ...


DENSE = [DenseScalarLearned(), DenseFullDepthAttention(), DenseFullDepthAttention(key_norm="none")]


def name_of(topology: Topology) -> str:
    return f"{type(topology).__name__}({topology})"


topologies = pytest.mark.parametrize("topology", every_topology() + DENSE, ids=name_of)


def random_rule(topology: Topology, seed: int = 0) -> Rule:
    torch.manual_seed(seed)
    rule = topology.build(SUBLAYERS, WIDTH).double()
    for parameter in rule.parameters():
        torch.nn.init.normal_(parameter)
    return rule


def random_inputs(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    branches = torch.randn(SUBLAYERS, WIDTH, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    return embedding, branches


def run(start, embedding, branches):
    """Return all reads, with a tanh layer as each sublayer."""
    stream = start(embedding)
    reads = []
    for branch in branches:
        reads.append(stream.read())
        stream.write(torch.tanh(reads[-1] @ branch))
    reads.append(stream.read())
    return reads, stream


def value_and_gradients(start, rule, seed=1):
    embedding, branches = random_inputs(seed)
    reads, stream = run(start, embedding, branches)
    generator = torch.Generator().manual_seed(7)
    loss = sum((read * torch.randn(read.shape, dtype=read.dtype, generator=generator)).sum() for read in reads)
    inputs = [embedding, branches, *rule.parameters()]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [*reads, *gradients], stream


def assert_equal(found, expected, tolerance=1e-10):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@topologies
def test_stream_equals_its_definition_in_values_and_gradients(topology):
    rule = random_rule(topology)
    fast, stream = value_and_gradients(rule.start, rule)
    plain, plain_stream = value_and_gradients(lambda embedding: PlainStream(rule, embedding), rule)
    assert_equal(fast, plain)
    expand = [row.expand(2 * TOKENS, -1, WIDTH) for row in stream.mixing_matrix()]
    assert_equal(expand, [row.expand(2 * TOKENS, -1, WIDTH) for row in plain_stream.mixing_matrix()])


@topologies
def test_stream_equals_loops_written_without_resnas(topology):
    family = next(name for name, cls in TOPOLOGIES.items() if isinstance(topology, cls))
    rule = random_rule(topology)
    parameters = dict(rule.named_parameters())

    class Loops:
        def __init__(self, embedding):
            self.shape, self.sources = embedding.shape, [embedding.flatten(0, 1)]

        def read(self):
            return defined_read(family, topology.model_dump(), parameters, self.sources, SUBLAYERS).view(self.shape)

        def write(self, source):
            self.sources.append(source.flatten(0, 1))

    fast, _ = value_and_gradients(rule.start, rule)
    loops, _ = value_and_gradients(Loops, rule)
    assert_equal(fast, loops)


@topologies
def test_gradcheck(topology):
    rule = random_rule(topology)
    names = [name for name, parameter in rule.named_parameters() if parameter.numel()]
    embedding, branches = random_inputs()

    def readout(embedding, branches, *parameters):
        with torch.nn.utils.stateless._reparametrize_module(rule, dict(zip(names, parameters, strict=True))):
            return run(rule.start, embedding, branches)[0][-1]

    inputs = (embedding[:1, :2].detach().requires_grad_(), branches, *(dict(rule.named_parameters())[n] for n in names))
    assert torch.autograd.gradcheck(readout, tuple(tensor.detach().clone().requires_grad_() for tensor in inputs))


@topologies
def test_reads_are_causal_in_depth_and_independent_of_other_tokens(topology):
    rule = random_rule(topology)
    sources = [torch.randn(1, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(SUBLAYERS + 1)]
    stream = rule.start(sources[0])
    reads = [stream.read()]
    for source in sources[1:]:
        stream.write(source)
        reads.append(stream.read())
    for index, read in enumerate(reads):
        gradients = torch.autograd.grad(
            read[0, 2].sum(), sources, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for number, gradient in enumerate(gradients):
            others = [token for token in range(TOKENS) if token != 2]
            assert gradient[0, others].abs().max() == 0
            if number > index:
                assert gradient.abs().max() == 0


def gradients_where_used(topology, used):
    """Return the gradients of a loss of the used reads alone, of the stream and of its definition.

    Sources here do not depend on reads, so that whole reads are missing from the backward pass.
    """
    rule = random_rule(topology)
    generator = torch.Generator().manual_seed(3)
    shape = (SUBLAYERS + 1, 1, TOKENS, WIDTH)
    sources = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    gradients = []
    for start in (rule.start, lambda embedding: PlainStream(rule, embedding)):
        stream = start(sources[0])
        reads = [stream.read()]
        for source in sources[1:]:
            stream.write(source)
            reads.append(stream.read())
        loss = sum(reads[read - 1].square().sum() for read in used)
        inputs = [sources, *rule.parameters()]
        gradients.append(torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True))
    return gradients


@topologies
@pytest.mark.parametrize("used", [{SUBLAYERS + 1}, {3, 5}, {9}, {2, SUBLAYERS}, {8, 9}])
def test_reads_that_do_not_reach_the_loss_take_nothing_from_those_that_do(topology, used):
    assert_equal(*gradients_where_used(topology, used))


@topologies
def test_mixing_matrix_has_the_groups_and_sums_that_are_announced(topology):
    rule = random_rule(topology)
    _, stream = value_and_gradients(rule.start, rule)
    for read, row in enumerate(stream.mixing_matrix(), start=1):
        assert row.shape[1] == read
        seen = {source for group in topology.groups(read) for source in group}
        assert all(row[:, source].abs().max() == 0 for source in range(read) if source not in seen)
        for group in topology.groups(read):
            assert torch.equal(
                row[:, group.start : group.stop], row[:, group.start : group.start + 1].expand(-1, len(group), -1)
            )
        if topology.normalised:
            by_group = sum(row[:, group.start] for group in topology.groups(read))
            torch.testing.assert_close(by_group, torch.ones_like(by_group))
            assert row.min() >= 0


@topologies
def test_read_is_the_matrix_times_the_sources(topology):
    rule = random_rule(topology)
    embedding, branches = random_inputs()
    with torch.no_grad():
        reads, stream = run(rule.start, embedding, branches)
    sources = [embedding.flatten(0, 1)]
    for read, row in zip(reads, stream.mixing_matrix(), strict=True):
        torch.testing.assert_close(read.flatten(0, 1), sum(row[:, i] * source for i, source in enumerate(sources)))
        if len(sources) <= SUBLAYERS:
            sources.append(torch.tanh(read @ branches[len(sources) - 1]).flatten(0, 1))


@topologies
def test_parameters_are_as_announced_and_survive_a_state_dict(topology):
    rule = random_rule(topology)
    assert sum(parameter.numel() for parameter in rule.parameters()) == topology.mixing_parameters(SUBLAYERS, WIDTH)
    assert topology.weights_learned == hasattr(rule, "queries") or hasattr(rule, "scalars")
    again = topology.build(SUBLAYERS, WIDTH).double()
    again.load_state_dict(rule.state_dict())
    assert_equal(value_and_gradients(again.start, again)[0], value_and_gradients(rule.start, rule)[0], tolerance=0)


@topologies
def test_start_is_documented_weights(topology):
    """At initialisation every source of the fixed and scalar families has weight 1, every group of a softmax 1 /
    groups."""
    rule = topology.build(SUBLAYERS, WIDTH).double()
    _, stream = value_and_gradients(rule.start, rule)
    for read, row in enumerate(stream.mixing_matrix(), start=1):
        groups = topology.groups(read)
        expected = 1 / len(groups) if topology.normalised else 1.0
        for group in groups:
            torch.testing.assert_close(row[:, group.start], torch.full_like(row[:, group.start], expected))


@topologies
def test_every_parameter_moves_at_the_first_step(topology):
    rule = topology.build(SUBLAYERS, WIDTH).double()
    embedding, branches = random_inputs()
    run(rule.start, embedding, branches)[0][-1].square().sum().backward()
    for parameter in rule.parameters():
        if parameter.numel():
            rows = parameter.grad.abs().amax(-1)
            assert (rows > 0).sum() >= len(rows) - 1  # a scalar of the only source of read 1 may stand still


@topologies
def test_sources_are_held_together_at_most_once_and_their_gradients_once(topology):
    """No stack of sources per read: of what is larger than a block of reads, there is one buffer, its gradient, and a
    piece of that gradient for a few tokens (here: all), once per block."""

    class Large(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.numel() > limit:
                storages = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
                self.made += result.untyped_storage().data_ptr() not in storages
            return result

    sublayers, tokens, width = 23, 4, 64  # three blocks of reads
    rule = topology.build(sublayers, width)
    parameters = sum(parameter.numel() for parameter in rule.parameters())
    limit = max(BLOCK * tokens * width, parameters)
    embedding = torch.randn(1, tokens, width, requires_grad=True)
    with Large() as large:
        stream = rule.start(embedding)
        for _ in range(sublayers):
            stream.write(stream.read() * 2)
        stream.read().sum().backward()
    assert large.made <= 2 + 2 * 2


fast_topologies = pytest.mark.parametrize(
    "topology",
    [ScalarLearned(), FullDepthAttention(), WindowedDepthAttention(window=2, old_sources="remainder"), *DENSE],
    ids=name_of,
)


@fast_topologies
def test_the_fast_stream_is_taken(topology):
    stream = random_rule(topology).start(random_inputs()[0])
    assert isinstance(stream, TapeStream)
    assert isinstance(stream._tape, DenseTape) is (topology in DENSE)


def test_large_sources_take_the_dense_tape():
    for topology, expected in [
        (ScalarLearned(), True),
        (FullDepthAttention(), True),
        (ScalarLearned(per_channel=True), False),
    ]:
        stream = topology.build(2, 256).start(torch.zeros(1, 512, 256))
        assert isinstance(stream._tape, DenseTape) is expected


@fast_topologies
def test_two_forwards_before_one_backward(topology):
    rule = random_rule(topology)
    separate = [value_and_gradients(rule.start, rule, seed)[0][SUBLAYERS + 1 :] for seed in (1, 2)]
    inputs = [random_inputs(seed) for seed in (1, 2)]
    runs = [run(rule.start, *pair)[0] for pair in inputs]
    losses = []
    for reads in runs:
        generator = torch.Generator().manual_seed(7)
        losses.append(
            sum((read * torch.randn(read.shape, dtype=read.dtype, generator=generator)).sum() for read in reads)
        )
    leaves = [*inputs[0], *inputs[1], *rule.parameters()]
    together = torch.autograd.grad(sum(losses), leaves)
    expected = [
        *separate[0][:2],
        *separate[1][:2],
        *(a + b for a, b in zip(separate[0][2:], separate[1][2:], strict=True)),
    ]
    assert_equal(together, expected)


@fast_topologies
def test_a_graph_can_be_walked_twice_and_a_part_of_it_first(topology):
    rule = random_rule(topology)
    embedding, branches = random_inputs()
    reads, _ = run(rule.start, embedding, branches)
    inputs = [embedding, branches, *rule.parameters()]
    fresh, _ = run(rule.start, embedding, branches)
    part = torch.autograd.grad(fresh[3].sum(), inputs)
    whole = torch.autograd.grad(reads[-1].sum(), inputs, retain_graph=True)
    assert_equal(torch.autograd.grad(reads[3].sum(), inputs, retain_graph=True), part, tolerance=1e-14)
    torch.autograd.grad(reads[-1].sum(), [branches], retain_graph=True)  # never comes to the start
    assert_equal(torch.autograd.grad(reads[3].sum(), inputs, retain_graph=True), part, tolerance=1e-14)
    assert_equal(torch.autograd.grad(reads[-1].sum(), inputs), whole, tolerance=1e-14)


@fast_topologies
def test_a_backward_pass_frees_the_sources_and_a_second_one_says_so(topology):
    rule = random_rule(topology)
    embedding, branches = random_inputs()
    reads, stream = run(rule.start, embedding, branches)
    tape = weakref.ref(stream._tape)
    del stream
    loss = reads[-1].square().sum()
    loss.backward(retain_graph=True)
    assert tape() is not None
    loss.backward()
    assert tape() is None  # though the loss still holds the graph
    with pytest.raises(RuntimeError, match=r"second time.*retain_graph=True"):
        reads[-1].backward(torch.ones_like(reads[-1]))


@fast_topologies
def test_double_backward_is_refused(topology):
    rule = random_rule(topology)
    embedding, branches = random_inputs()
    readout = run(rule.start, embedding, branches)[0][-1]
    (gradient,) = torch.autograd.grad(readout.square().sum(), embedding, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@fast_topologies
def test_checkpointed_sublayers_and_an_exception_in_between_change_nothing(topology):
    rule = random_rule(topology)
    embedding, branches = random_inputs()
    plain, _ = run(rule.start, embedding, branches)
    broken = rule.start(embedding)
    with pytest.raises(RuntimeError):
        broken.write(broken.read() @ torch.zeros(99, 99, dtype=torch.float64))
    stream = rule.start(embedding)
    for branch in branches:
        stream.write(
            checkpoint(lambda read, branch=branch: torch.tanh(read @ branch), stream.read(), use_reentrant=False)
        )
    inputs = [embedding, branches, *rule.parameters()]
    expected = torch.autograd.grad(plain[-1].square().sum(), inputs)
    assert_equal(torch.autograd.grad(stream.read().square().sum(), inputs), expected, tolerance=1e-14)


@fast_topologies
def test_autocast_leaves_logits_and_sums_in_full_precision(topology):
    rule = topology.build(SUBLAYERS, WIDTH)
    for parameter in rule.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    embedding = torch.randn(1, TOKENS, WIDTH, requires_grad=True)
    sources = torch.randn(SUBLAYERS, 1, TOKENS, WIDTH).bfloat16()
    readouts = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            stream = rule.start(embedding)
            for source in sources:
                stream.read()
                stream.write(source)
            readouts.append(stream.read())
    assert readouts[0].dtype == torch.float32
    assert torch.equal(*readouts)


def test_window_that_holds_every_source_is_full_attention_bit_for_bit():
    full, window = FullDepthAttention(), WindowedDepthAttention(window=SUBLAYERS + 1, keep_embedding=False)
    assert window.canonical(SUBLAYERS) == full
    rules = [random_rule(topology) for topology in (full, window)]
    assert_equal(*(value_and_gradients(rule.start, rule)[0] for rule in rules), tolerance=0)


@pytest.mark.parametrize(("window", "same"), [(SUBLAYERS - 1, False), (SUBLAYERS, True), (SUBLAYERS + 5, True)])
def test_canonical_form_collapses_only_what_is_the_same_function(window, same):
    topology = WindowedDepthAttention(window=window, keep_embedding=True)
    assert (topology.canonical(SUBLAYERS) == FullDepthAttention()) is same


def test_scalars_at_the_start_are_the_fixed_stream_exactly():
    fixed, scalar = (topology.build(SUBLAYERS, WIDTH).double() for topology in (Fixed(), ScalarLearned()))
    found = value_and_gradients(scalar.start, scalar)[0][: SUBLAYERS + 1]
    expected = value_and_gradients(fixed.start, fixed)[0][: SUBLAYERS + 1]
    assert_equal(found, expected, tolerance=0)


def test_groups_that_a_tape_cannot_serve_fall_back_to_the_definition():
    class EverySecond(FullDepthAttention):
        def groups(self, read):
            return [range(i, i + 1) for i in range(read) if (read - i) % 2 == 1]

    rule = random_rule(EverySecond())
    assert isinstance(rule.start(random_inputs()[0]), PlainStream)
