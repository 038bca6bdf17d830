"""The fast streams in the circumstances of real training: many blocks, accumulation, DDP, torch.compile, new rules."""

import os

import pytest
import test_residual
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from test_residual import DENSE, assert_equal, fast_topologies, name_of, random_rule, run, value_and_gradients
from torch import nn

from resnas.architecture import Architecture
from resnas.model import Model, loss_function
from resnas.residual import WindowedDepthAttention, decoding
from resnas.residual import dense as dense_module
from resnas.residual.rule import PlainStream, Rule
from resnas.residual.stream import TapeStream
from resnas.residual.tape import GroupWeighting, Plan, Tape
from resnas.tasks.task import TaskShape

SHAPE = TaskShape("tokens", 32, 8, 32, causal=True, pooled=False)
RESIDUALS = [
    "scalar_learned",
    {"windowed_depth_attention": {"window": 2, "old_sources": "remainder"}},
    "full_depth_attention",
]


@pytest.mark.parametrize("topology", DENSE, ids=name_of)
@pytest.mark.parametrize("sublayers", [7, 8, 15, 16, 26])
@pytest.mark.parametrize("tokens_per_chunk", [1, 3, 100])
def test_any_number_of_blocks_and_chunks_equals_the_definition(topology, sublayers, tokens_per_chunk, monkeypatch):
    monkeypatch.setattr(test_residual, "SUBLAYERS", sublayers)
    monkeypatch.setattr(dense_module, "CHUNK_ELEMENTS", tokens_per_chunk * dense_module.BLOCK * test_residual.WIDTH)
    rule = random_rule(topology)
    fast, _ = value_and_gradients(rule.start, rule)
    plain, _ = value_and_gradients(lambda embedding: PlainStream(rule, embedding), rule)
    assert_equal(fast, plain)


@pytest.mark.parametrize("topology", DENSE, ids=name_of)
@pytest.mark.parametrize("used", [{27}, {3, 20}, {8, 9, 17}])
def test_gaps_across_several_blocks(topology, used, monkeypatch):
    monkeypatch.setattr(test_residual, "SUBLAYERS", 26)
    assert_equal(*test_residual.gradients_where_used(topology, used))


@fast_topologies
@pytest.mark.parametrize("few_tokens", [0, 16])
def test_without_gradients_reads_and_weights_are_the_same(topology, few_tokens, monkeypatch):
    """A few tokens take the stream that is meant for generation, more of them the one of training."""
    monkeypatch.setattr(decoding, "FEW_TOKENS", few_tokens)
    rule = random_rule(topology)
    embedding, branches = test_residual.random_inputs()
    with_graph, stream = run(rule.start, embedding, branches)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            reads, without = run(rule.start, embedding, branches)
        few = few_tokens > 0 and not isinstance(topology, WindowedDepthAttention)
        assert isinstance(without, decoding.DecodingStream) is few
        assert not any(read.requires_grad for read in reads)
        assert_equal(reads, [read.detach() for read in with_graph], tolerance=1e-14)
        rows = [
            [row.expand(2 * test_residual.TOKENS, -1, -1) for row in one.mixing_matrix()] for one in (without, stream)
        ]
        assert_equal(*rows, tolerance=1e-14)


@fast_topologies
def test_logits_of_any_size_leave_values_and_gradients_finite(topology):
    """Logits of size 1e4 leave all weight to one source; an online softmax must not overflow on the way."""
    rule = random_rule(topology)
    with torch.no_grad():
        for parameter in rule.parameters():
            parameter *= 1e4
    fast, _ = value_and_gradients(rule.start, rule)
    plain, _ = value_and_gradients(lambda embedding: PlainStream(rule, embedding), rule)
    assert all(torch.isfinite(one).all() for one in fast)
    assert_equal(fast, plain, tolerance=1e-8)


def decoder(residual, dense: bool = False, depth: int = 5) -> Model:
    torch.manual_seed(0)
    model = Model(Architecture(depth=depth, width=16, heads=2, residual=residual), SHAPE)
    for parameter in model.mixing_parameters():
        nn.init.normal_(parameter, std=0.5)
    if dense:
        model.residual.dense_from_elements = 0
    return model


def batch(examples: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randint(32, (examples, 8), generator=torch.Generator().manual_seed(seed))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.numel()]


models = pytest.mark.parametrize(
    ("residual", "dense"), [*((residual, False) for residual in RESIDUALS), (RESIDUALS[0], True), (RESIDUALS[2], True)]
)


@models
def test_accumulated_gradients_are_those_of_the_whole_batch(residual, dense):
    tokens = batch()
    whole, parts = decoder(residual, dense).double(), decoder(residual, dense).double()
    loss_function(whole(tokens), tokens).backward()
    for part in tokens.chunk(2):
        (loss_function(parts(part), part) / 2).backward()
    assert_equal(gradients(parts), gradients(whole))


@models
def test_a_model_in_bfloat16_is_close_to_float32(residual, dense):
    tokens = batch()
    precise, coarse = decoder(residual, dense), decoder(residual, dense).bfloat16()
    for model in (precise, coarse):
        loss_function(model(tokens), tokens).backward()
    for found, expected in zip(gradients(coarse), gradients(precise), strict=True):
        assert found.dtype == torch.bfloat16
        assert (found.float() - expected).norm() < 0.2 * expected.norm() + 1e-4


@models
def test_autocast_trains_to_gradients_close_to_float32(residual, dense):
    tokens = batch()
    precise, coarse = decoder(residual, dense), decoder(residual, dense)
    loss_function(precise(tokens), tokens).backward()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_function(coarse(tokens), tokens)
        loss.backward()  # inside, where autocast is still on
    for found, expected in zip(gradients(coarse), gradients(precise), strict=True):
        assert (found - expected).norm() < 0.2 * expected.norm() + 1e-4


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, while tracing
@pytest.mark.parametrize("residual", ["fixed", *RESIDUALS])
@pytest.mark.parametrize("dense", [False, True])
def test_compiled_models_have_the_same_gradients(residual, dense):
    """`aot_eager` traces forward and backward as every backend does, without a C++ compiler."""
    torch.compiler.reset()
    tokens = batch()
    plain, compiled = decoder(residual, dense), decoder(residual, dense)
    runner = torch.compile(compiled, backend="aot_eager")
    loss_function(plain(tokens), tokens).backward()
    for _ in range(2):
        compiled.zero_grad()
        loss_function(runner(tokens), tokens).backward()
    assert_equal(gradients(compiled), gradients(plain), tolerance=1e-6)


def test_the_fixed_topology_compiles_into_one_graph():
    torch.compiler.reset()
    tokens = batch()
    model = decoder("fixed")
    logits = torch.compile(model, backend="aot_eager", fullgraph=True)(tokens)
    torch.testing.assert_close(logits, model(tokens))


def _train_one_process(rank: int, folder: str, residual, dense: bool) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(decoder(residual, dense).double())
    part = batch().chunk(2)[rank]
    loss_function(model(part), part).backward()
    torch.save(gradients(model), os.path.join(folder, f"{rank}.pt"))
    os._exit(0)  # now and then, tearing gloo down never ends


@pytest.mark.parametrize("residual", RESIDUALS[1:])
def test_data_parallel_processes_share_the_gradients_of_the_whole_batch(residual, tmp_path):
    dense = residual == "full_depth_attention"
    multiprocessing.spawn(_train_one_process, (str(tmp_path), residual, dense), nprocs=2)
    tokens, whole = batch(), decoder(residual, dense).double()
    loss_function(whole(tokens), tokens).backward()
    for rank in range(2):
        assert_equal(torch.load(tmp_path / f"{rank}.pt"), gradients(whole))


class GatedRule(Rule):
    """What no shipped family has, all at once: sigmoid weights, two heads, queries made from the newest source."""

    heads = 2

    def __init__(self, sublayers: int, width: int) -> None:
        super().__init__(sublayers, width)
        self.projection = nn.Parameter(torch.randn(self.heads, width, width) / width)

    def row(self, read, sources):
        keys = torch.stack(list(sources), dim=1)  # [tokens, read, width]
        queries = torch.einsum("hde,te->htd", self.projection, sources[-1])
        weights = torch.sigmoid(torch.einsum("htd,trd->trh", queries, keys))
        return weights.repeat_interleave(self.width // self.heads, dim=-1)

    def start(self, embedding):
        plan = Plan([[range(source, source + 1) for source in range(read)] for read in range(1, self.sublayers + 2)])
        return TapeStream(Tape(RowWeighting(self), plan), embedding)


class RowWeighting(GroupWeighting):
    """The weights of any rule's `row`, and their gradients by a small graph per read."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(list(rule.parameters()))
        self.rule, self.graphs = rule, {}

    def weights(self, read, values):
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in values]
            self.graphs[read] = leaves, list(self.rule.row(read, leaves).unbind(1))
        return [weight.detach() for weight in self.graphs[read][1]]

    def product(self, gradient, value):
        return gradient * value  # a weight per token and feature

    def start_backward(self):
        self.of_sources, self.of_parameters = {}, [torch.zeros_like(one) for one in self.parameters]

    def read_backward(self, read, gradients):
        leaves, weights = self.graphs[read]
        found = torch.autograd.grad(weights, [*leaves, *self.parameters], list(gradients), retain_graph=True)
        for source, gradient in enumerate(found[: len(leaves)]):
            self.of_sources[source] = self.of_sources.get(source, 0) + gradient
        self.of_parameters = [a + b for a, b in zip(self.of_parameters, found[len(leaves) :], strict=True)]

    def source_gradient(self, source, value):
        return self.of_sources.get(source)

    def parameter_gradients(self):
        return tuple(self.of_parameters)


def test_the_tape_carries_sigmoid_heads_and_queries_that_depend_on_the_input():
    torch.manual_seed(0)
    rule = GatedRule(test_residual.SUBLAYERS, test_residual.WIDTH).double()
    fast, stream = value_and_gradients(rule.start, rule)
    plain, _ = value_and_gradients(lambda embedding: PlainStream(rule, embedding), rule)
    assert isinstance(stream, TapeStream)
    assert_equal(fast, plain)
