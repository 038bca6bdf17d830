"""The Transformer stack, written once: decoder or encoder around any residual topology, and a trace of one forward
pass.

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
from resnas.model.blocks import MLP, Attention, RMSNorm, Sublayer, root_mean_square_normalised
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
            for branch in (Attention(architecture, shape), MLP(architecture))
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

    def mixing_parameters(self) -> list[nn.Parameter]:
        """Return the trained parameters of the depth-mixing matrix."""
        return list(self.residual.parameters())

    def _run(self, inputs: Tensor, probe: Probe | None, trace: Trace | None = None) -> tuple[Tensor, list[Tensor]]:
        embedding = self._embed(inputs)
        stream = self.residual.start(embedding)
        if trace is not None:
            trace.outputs.append(embedding.detach())
        for number, sublayer in enumerate(self.sublayers, start=1):
            read = stream.read()
            stream.write(sublayer(read, _tapped(number, read, probe, trace)))
        readout = stream.read()
        normalised = self.final_norm(readout)
        if self.shape.pooled:
            normalised = normalised.mean(1)
        logits: Tensor = self.head(normalised)
        return logits, stream.mixing_matrix() if trace is not None else []

    def _embed(self, inputs: Tensor) -> Tensor:
        embedding: Tensor = self.embedding(inputs)
        if self.positions is not None:
            embedding = embedding + self.positions.weight[: inputs.shape[1]]
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
