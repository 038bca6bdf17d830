"""The Transformer stack, written once: decoder or encoder around any residual topology, a trace of one forward pass,
and generation token by token.

Shapes: B examples, T tokens, D width. The topology sees only reads and writes, so two architectures that differ in
their topology differ in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from resnas.architecture import Architecture
from resnas.model import generation
from resnas.model.blocks import MLP, Attention, RMSNorm, Sublayer, root_mean_square_normalised
from resnas.model.cache import KeyValueCache
from resnas.residual.attention import EPSILON
from resnas.tasks.task import IGNORED, TaskShape

Probe = Callable[[int, Tensor], Tensor]
"""Called with the number of a sublayer (1 to S) and what its branch adds [B, T, D]; what it returns is added
instead."""


class Model(nn.Module):
    """Embedding, S sublayers around one residual topology, final norm and head.

    Inputs are token numbers [B, T] or patches [B, T, features]; logits are [B, T, outputs], or [B, outputs] where the
    task is pooled.
    """

    def __init__(self, architecture: Architecture, shape: TaskShape) -> None:
        super().__init__()
        self.architecture, self.shape = architecture, shape
        width = architecture.width
        self.embedding: nn.Module = (
            nn.Embedding(shape.input_size, width)
            if shape.inputs == "tokens"
            else nn.Linear(shape.input_size, width, bias=False)
        )
        self.positions = nn.Embedding(shape.context, width) if architecture.positions == "learned" else None
        self.sublayers = nn.ModuleList(
            Sublayer(branch, architecture, layer)
            for layer in range(1, architecture.depth + 1)
            for branch in (Attention(architecture, shape, layer), MLP(architecture))
        )
        self.residual = architecture.residual.build(architecture.sublayers, width)
        self.final_norm = RMSNorm(width)
        self.head = nn.Linear(width, shape.outputs, bias=False)
        self._initialise()

    def forward(self, inputs: Tensor, probe: Probe | None = None) -> Tensor:
        """Return the logits."""
        logits, _ = self._run(inputs, probe)
        return logits

    def trace(self, inputs: Tensor, probe: Probe | None = None) -> tuple[Tensor, Trace]:
        """Return the logits and what went through the residual stream."""
        trace = Trace([], [], [])
        logits, matrix = self._run(inputs, probe, trace)
        if self.architecture.norm == "post":
            scales = _post_norm_scales(trace)
            trace.outputs = [trace.outputs[0]] + [
                scale * output for scale, output in zip(scales, trace.outputs[1:], strict=True)
            ]
            matrix = through_post_norms(matrix, [scale.flatten(0, -2) for scale in scales])
        trace.matrix = matrix
        return logits, trace

    def new_cache(self, capacity: int | None = None) -> KeyValueCache:
        """Return an empty cache for `step`, with room for `capacity` tokens (as many as the context, unless given).

        Raises:
            InputError: the task is not one of tokens, causal and with a prediction per position; or the capacity is
                not from 1 to the context.
        """
        generation.check_task(self.shape)
        capacity = self.shape.context if capacity is None else capacity
        generation.check_capacity(capacity, self.shape)
        return KeyValueCache(capacity)

    @torch.no_grad()
    def step(self, tokens: Tensor, cache: KeyValueCache) -> Tensor:
        """Return the logits [B, T, outputs] of T new tokens that follow those in the cache, and add them to it.

        Depth mixing stays within a token, so a new token needs no sources of the tokens before it; only attention
        looks at them, through the cache. The logits are those of `forward` at the same positions, without gradients.
        The numbers in `tokens` [B, T] are not looked at, which on an accelerator would mean to wait for them.

        Raises:
            InputError: `tokens` are not whole numbers [B, T], do not fit into the cache, or are of another number of
                examples than it holds.
        """
        tokens = generation.whole_numbers(tokens, "tokens")
        cache.check_room(*tokens.shape)
        logits, _ = self._run(tokens, cache=cache)
        cache.length += tokens.shape[1]
        return logits

    def generate(
        self,
        prompt: Tensor,
        new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the prompt [B, T] and `new_tokens` tokens drawn one after the other, [B, T + new_tokens].

        Args:
            prompt: token numbers, on the model's device.
            new_tokens: how many to add to each example.
            temperature: divides the logits before the softmax; 0 takes the likeliest token.
            top_k: draw from this many likeliest tokens only.
            generator: source of randomness, on the model's device; torch's own unless given.

        Raises:
            InputError: as `new_cache`; the prompt is not whole numbers [B, T], is empty, or holds a number that is no
                token; prompt and new tokens are longer than the context; or an option is out of its range.
        """
        sampler = generation.Sampler(temperature, top_k, generator)
        prompt = generation.checked_prompt(prompt, new_tokens, sampler, self.shape)
        cache = self.new_cache(prompt.shape[1] + new_tokens)
        pieces = [prompt]
        for _ in range(new_tokens):
            logits = self.step(pieces[-1], cache)
            pieces.append(sampler.draw(logits[:, -1]))
        return torch.cat(pieces, dim=1)

    def mixing_parameters(self) -> list[nn.Parameter]:
        """Return the trained parameters of the depth-mixing matrix."""
        return list(self.residual.parameters())

    def _run(
        self,
        inputs: Tensor,
        probe: Probe | None = None,
        trace: Trace | None = None,
        cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        embedding = self._embed(inputs, first=0 if cache is None else cache.length)
        stream = self.residual.start(embedding)
        if trace is not None:
            trace.outputs.append(embedding.detach())
        for number, sublayer in enumerate(self.sublayers, start=1):
            read = stream.read()
            stream.write(sublayer(read, _tapped(number, read, probe, trace), cache))
        readout = stream.read()
        normalised = self.final_norm(readout)
        if self.shape.pooled:
            normalised = normalised.mean(1)
        logits: Tensor = self.head(normalised)
        return logits, stream.mixing_matrix() if trace is not None else []

    def _embed(self, inputs: Tensor, first: int) -> Tensor:
        """Return source 0 of inputs whose first token has the position `first`."""
        embedding: Tensor = self.embedding(inputs)
        if self.positions is not None:
            embedding = embedding + self.positions.weight[first : first + inputs.shape[1]]
        embedding = embedding.to(self.head.weight.dtype)  # the stream keeps its precision under autocast
        return root_mean_square_normalised(embedding) if self.architecture.norm == "post" else embedding

    def _initialise(self) -> None:
        """Normal with variance 2 / (5 D), which is 0.02² at D = 1000; output projections smaller by sqrt(S).

        That smaller start and the scale 1/sqrt(layer) do the same job; both together would shrink twice.
        """
        deviation = math.sqrt(2 / (5 * self.architecture.width))
        shrink = (
            1.0 if self.architecture.branch_scale == "1/sqrt(layer)" else 1 / math.sqrt(self.architecture.sublayers)
        )
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=deviation)
        for sublayer in self.sublayers:
            nn.init.normal_(sublayer.branch.output.weight, std=deviation * shrink)  # type: ignore[union-attr, arg-type]


@dataclass
class Trace:
    """What went through the residual stream in one forward pass, detached.

    Attributes:
        outputs: what the embedding (0) and the branches (1 to S) added, each [B, T, D].
        reads: what the sublayers consumed (1 to S), each [B, T, D], before their norm.
        matrix: entry l - 1 holds the weights of `outputs` in read l: [tokens or 1, l, D or 1].
    """

    outputs: list[Tensor]
    reads: list[Tensor]
    matrix: list[Tensor]


def loss_function(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over positions that have a target."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def _tapped(number: int, read: Tensor, probe: Probe | None, trace: Trace | None) -> Callable[[Tensor], Tensor] | None:
    if probe is None and trace is None:
        return None

    def tap(output: Tensor) -> Tensor:
        if probe is not None:
            output = probe(number, output)
        if trace is not None:
            trace.reads.append(read.detach())
            trace.outputs.append(output.detach())
        return output

    return tap


def _post_norm_scales(trace: Trace) -> list[Tensor]:
    """Return 1 / rms(r + f) of each sublayer [B, T, 1]."""
    return [
        torch.rsqrt((read + output).square().mean(-1, keepdim=True) + EPSILON)
        for read, output in zip(trace.reads, trace.outputs[1:], strict=True)
    ]


def through_post_norms(matrix: list[Tensor], scales: list[Tensor]) -> list[Tensor]:
    """Rewrite mixing weights of written sources as weights of (scaled) branch outputs, the norms held fixed.

    A post-norm sublayer writes v_i = s_i f_i + (s_i - 1) r_i with the scale s_i = 1 / rms(r_i + f_i) of each token. So
    N_(j to l) = M_(j to l) + sum over i > j of M_(i to l) (s_i - 1) N_(j to i) are the weights of s_j f_j in read l;
    in the fixed stream they are the product of the scales between.

    Args:
        matrix: weights M per read, [tokens or 1, l, D or 1].
        scales: s_1 to s_S, each [tokens, 1].
    """
    rewritten: list[Tensor] = []
    for row in matrix:
        read = row.shape[1]
        new = row.expand(scales[0].shape[0], -1, -1).clone()
        for source in range(1, read):
            carried = row[:, source : source + 1] * (scales[source - 1] - 1).unsqueeze(-1)
            new[:, :source] += carried * rewritten[source - 1]
        rewritten.append(new)
    return rewritten
