"""Generation: with a cache, token by token or in pieces, the model says what its full forward pass says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_model import PATCHES, TOKENS, architectures, batch, made
from test_residual import every_topology, name_of

from resnas.architecture import Architecture
from resnas.errors import InputError
from resnas.model import Model
from resnas.tasks.task import TaskShape

LETTERS = TaskShape("tokens", input_size=7, context=9, outputs=7, causal=True, pooled=False)
ENCODER = TaskShape("tokens", input_size=7, context=9, outputs=7, causal=False, pooled=False)
POOLED = TaskShape("tokens", input_size=7, context=9, outputs=7, causal=True, pooled=True)


def stepped(model: Model, inputs, pieces):
    """Return the logits of all positions, computed in pieces of so many tokens."""
    cache = model.new_cache()
    logits = torch.cat([model.step(piece, cache) for piece in inputs.split(pieces, dim=1)], dim=1)
    assert cache.length == inputs.shape[1]
    return logits


def assert_steps_equal_forward(model: Model, inputs, pieces):
    torch.testing.assert_close(stepped(model, inputs, pieces), model(inputs).detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("topology", every_topology(), ids=name_of)
@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
def test_steps_equal_the_full_forward_pass(topology, positions, norm):
    model = made(depth=2, residual=topology, positions=positions, norm=norm, scramble=True)
    for pieces in ([3, 1, 1, 1], [1, 3, 2]):
        assert_steps_equal_forward(model, batch()[0], pieces)


@st.composite
def pieces_of_the_context(draw):
    cuts = sorted(draw(st.sets(st.integers(1, TOKENS.context - 1))))
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, TOKENS.context], strict=True)]


@settings(max_examples=60)
@given(architectures, pieces_of_the_context())
def test_steps_of_any_size_equal_the_full_forward_pass_of_any_stack(architecture, pieces):
    assert_steps_equal_forward(made(scramble=True, **dict(architecture)), batch()[0], pieces)


@pytest.mark.parametrize("residual", ["scalar_learned", "full_depth_attention"])
def test_steps_equal_a_full_forward_pass_large_enough_to_be_mixed_in_blocks(residual):
    shape = TaskShape("tokens", input_size=11, context=64, outputs=7, causal=True, pooled=False)
    model = made(shape, width=32, depth=5, residual=residual, scramble=True)
    assert_steps_equal_forward(model, batch(shape, examples=64)[0], [60, 1, 1, 2])


def test_the_newest_tokens_can_be_forgotten_and_all_of_them_with_their_examples():
    model, inputs = made(scramble=True), batch()[0]
    cache = model.new_cache()
    model.step(inputs, cache)
    for known, examples in ((2, 3), (0, 2)):
        cache.length = known
        logits = model.step(inputs[:examples, known:], cache)
        torch.testing.assert_close(logits, model(inputs)[:examples, known:].detach(), rtol=1e-10, atol=1e-10)


def test_a_cache_has_the_precision_of_the_keys_under_autocast():
    torch.manual_seed(0)
    model, inputs = Model(Architecture(depth=2, width=16, heads=2), TOKENS), batch()[0]
    with torch.autocast("cpu", torch.bfloat16):
        cache = model.new_cache()
        logits = torch.cat([model.step(piece, cache) for piece in inputs.split([3, 2, 1], dim=1)], dim=1)
        expected = model(inputs).detach()
        assert model.generate(inputs[:, :2], 3).shape == (3, 5)
    keys, values = cache.extend(1, *torch.zeros(2, 3, 2, 0, 8))
    assert keys.dtype == values.dtype == torch.bfloat16
    torch.testing.assert_close(logits, expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("residual", ["fixed", "full_depth_attention"])
def test_greedy_generation_is_a_loop_of_full_forward_passes(residual):
    model = made(LETTERS, residual=residual, scramble=True)
    prompt = expected = batch(LETTERS)[0][:, :3]
    for _ in range(6):
        expected = torch.cat((expected, model(expected)[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(model.generate(prompt, 6, temperature=0), expected)
    assert torch.equal(model.generate(prompt, 6, top_k=1), expected)
    assert torch.equal(model.generate(prompt, 6, temperature=1e-6), expected)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_sampling_repeats_with_its_generator_and_leaves_the_global_one_alone():
    model, prompt = made(LETTERS), batch(LETTERS)[0][:, :2]
    before = torch.get_rng_state()
    first = model.generate(prompt, 7, generator=seeded(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model.generate(prompt, 7, generator=seeded(1)), first)
    assert not torch.equal(model.generate(prompt, 7, generator=seeded(2)), first)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (2.0, 3)])
def test_samples_have_the_probabilities_of_the_model(temperature, top_k):
    model, prompt = made(LETTERS, scramble=True), batch(LETTERS, examples=1)[0][:, :4]
    logits = model(prompt)[0, -1].detach() / temperature
    logits[logits < logits.sort(descending=True).values[(top_k or 7) - 1]] = -torch.inf
    samples = 20_000
    drawn = model.generate(prompt.expand(samples, -1), 1, temperature=temperature, top_k=top_k, generator=seeded(0))
    shares = drawn[:, -1].bincount(minlength=7) / samples
    torch.testing.assert_close(shares.double(), logits.softmax(-1), rtol=0, atol=0.02)
    assert ((shares > 0) <= (logits > -torch.inf)).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_a_prompt_may_have_any_precision_and_comes_back_first(dtype):
    model, prompt = made(LETTERS), batch(LETTERS)[0][:, :4]
    generated = model.generate(prompt.to(dtype), 5, generator=seeded(0))
    assert generated.shape == (3, 9)
    assert torch.equal(generated[:, :4], prompt)
    assert torch.equal(model.generate(prompt.to(dtype), 0), prompt)


@pytest.mark.parametrize("training", [True, False])
def test_generation_leaves_no_graph_and_no_trace_in_the_model(training):
    model, inputs = made(LETTERS, residual="full_depth_attention").train(training), batch(LETTERS)[0]
    model.sublayers[0].train(not training)
    modes = [module.training for module in model.modules()]
    cache = model.new_cache()
    assert not model.step(inputs[:, :4], cache).requires_grad
    assert not any(part.requires_grad for part in cache.extend(1, *torch.zeros(2, 3, 2, 0, 4)))
    generated = model.generate(inputs[:, :4], 2)
    assert [module.training for module in model.modules()] == modes
    assert torch.is_grad_enabled()
    model(generated).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_inference_mode_may_be_used_around_it():
    model, inputs = made(LETTERS, residual="full_depth_attention"), batch(LETTERS)[0]
    with torch.inference_mode():
        assert_steps_equal_forward(model, inputs, [4, 1, 4])


PROMPT = torch.zeros(2, 4, dtype=torch.long)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": [[1, 2]]}, "must be a tensor .*, not list"),
        ({"prompt": PROMPT.float()}, "not of torch.float32"),
        ({"prompt": PROMPT.bool()}, "not of torch.bool"),
        ({"prompt": PROMPT[0]}, r"\[examples, tokens\], at least one of each, not \[4\]"),
        ({"prompt": PROMPT[:, :0]}, r"not \[2, 0\]"),
        ({"prompt": PROMPT + 7}, "holds 7; its token numbers must be from 0 to 6"),
        ({"prompt": PROMPT - 1}, "holds -1"),
        ({"new_tokens": 6}, "4 tokens and 6 new ones are more than the context of 9"),
        ({"new_tokens": -1}, "new_tokens must be at least 0, not -1"),
        ({"temperature": -0.5}, "temperature must be at least 0, not -0.5"),
        ({"temperature": float("nan")}, "temperature must be at least 0, not nan"),
        ({"top_k": 0}, "top_k must be from 1 to 7 .*, not 0"),
        ({"top_k": 8}, "not 8"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        made(LETTERS).generate(**{"prompt": PROMPT, "new_tokens": 5} | arguments)


@pytest.mark.parametrize(("shape", "reason"), [(PATCHES, "patches"), (ENCODER, "encoder"), (POOLED, "per example")])
def test_only_a_decoder_of_tokens_generates(shape, reason):
    model = made(shape)
    with pytest.raises(InputError, match=reason):
        model.generate(PROMPT, 1)
    with pytest.raises(InputError, match=reason):
        model.new_cache()


def test_classes_that_are_no_tokens_cannot_be_generated():
    model = made(TaskShape("tokens", input_size=7, context=9, outputs=8, causal=True, pooled=False))
    with pytest.raises(InputError, match="the 8 classes"):
        model.generate(PROMPT, 1)


def test_a_step_must_fit_its_cache():
    model = made(LETTERS)
    for capacity in (0, 10):
        with pytest.raises(InputError, match=f"room for 1 to 9 tokens .*, not {capacity}"):
            model.new_cache(capacity)
    cache = model.new_cache(5)
    with pytest.raises(InputError, match=r"not of torch\.float64"):
        model.step(PROMPT.double(), cache)
    model.step(PROMPT, cache)
    with pytest.raises(InputError, match="2 more tokens do not fit: the cache holds 4 of at most 5"):
        model.step(PROMPT[:, :2], cache)
    with pytest.raises(InputError, match="1 examples cannot follow: the cache holds 2"):
        model.step(PROMPT[:1, :1], cache)
    assert model.step(PROMPT[:, :1], cache).shape == (2, 1, 7)
