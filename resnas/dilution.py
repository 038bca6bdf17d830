"""Dilution and its companions: pure functions of sources, weights, losses and gradients, and one function that
measures a model.

Definitions are those of the README's section on dilution. Sources are numbered from 0 (the embedding) to S, reads
from 1 to S + 1 (the readout); every function says what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.stats import theilslopes
from torch import Tensor

from resnas.model import Model, Trace, loss_function

if TYPE_CHECKING:
    from resnas.tasks.task import Batch

TINY = 1e-30
"""Keeps logarithms and ratios of empty sources finite."""


def shares(row: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """Return each source's share of a read, [l]: |M_i| ‖v_i‖ over its sum, per token, then the mean over tokens.

    Args:
        row: mixing weights [tokens or 1, l, width or 1].
        sources: the l sources, each [tokens, width].
    """
    sizes = torch.stack([(row[:, i] * source).norm(dim=-1) for i, source in enumerate(sources)], dim=-1)
    return (sizes / sizes.sum(-1, keepdim=True).clamp_min(TINY)).mean(0)


def slope(values: Sequence[float], positions: Sequence[float]) -> float:
    """Return the slope of log(value) on log(position): the median of the slopes between all pairs (Theil and Sen).

    A power law gives its exponent exactly, a constant gives 0, and a few wild values do not move it.
    """
    logs = np.log(np.maximum(np.asarray(values, dtype=float), TINY))
    return float(theilslopes(logs, np.log(np.asarray(positions, dtype=float))).slope)


def dilution(newest_shares: Sequence[float]) -> float:
    """Return minus the slope of log(newest share) on log(l).

    Args:
        newest_shares: share of source l - 1 in read l, for reads 2 to S + 1.
    """
    return 0.0 - slope(newest_shares, range(2, len(newest_shares) + 2))


def effective_depth(losses_without: Sequence[float], loss: float) -> float:
    """Return (sum c)² / (S sum c²) with c = max(0, loss without sublayer l - loss): 1 where all count alike, 1/S
    where one does."""
    importance = np.maximum(np.asarray(losses_without) - loss, 0.0)
    total = float(importance.sum())
    return total**2 / (len(importance) * float((importance**2).sum())) if total > 0 else 0.0


def late_share(losses_without: Sequence[float], loss: float) -> float:
    """Return the share of sum c in the deeper half of the sublayers; 0 where no sublayer matters."""
    importance = np.maximum(np.asarray(losses_without) - loss, 0.0)
    total = float(importance.sum())
    return float(importance[len(importance) // 2 :].sum()) / total if total > 0 else 0.0


def gini(values: Sequence[float]) -> float:
    """Return the Gini coefficient of values ≥ 0: 0 where all are equal, (n - 1) / n where one has everything."""
    ordered = np.sort(np.asarray(values, dtype=float))
    count, total = len(ordered), float(ordered.sum())
    if total <= 0:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered) / (count * total)


def routing_entropy(row: Tensor) -> float:
    """Return the entropy of |weights| of a read over log(l), mean over tokens: 1 for uniform weights. [tokens or 1,
    l, width or 1]."""
    size = row.abs().mean(-1)
    probability = size / size.sum(-1, keepdim=True).clamp_min(TINY)
    entropy = -(probability * probability.clamp_min(TINY).log()).sum(-1).mean()
    return float(entropy) / math.log(row.shape[1]) if row.shape[1] > 1 else 1.0


def mean_reach(share: Tensor) -> float:
    """Return how many sources back a read looks on average, weighted by share [l]."""
    distance = torch.arange(len(share), 0, -1, dtype=share.dtype, device=share.device)
    return float((share * distance).sum())


@dataclass(frozen=True)
class Dilution:
    """What was measured on one fixed batch.

    Attributes:
        metrics: the figures to compare between topologies, by name (`resnas.results.METRICS`).
        profiles: descriptors over depth within one topology, by name: one number per read or sublayer.
        matrix: mean |mixing weight| over tokens and features, matrix[l - 1][i] of source i in read l.
    """

    metrics: dict[str, float]
    profiles: dict[str, list[float]]
    matrix: list[list[float]]


def measure(model: Model, batch: Batch) -> Dilution:
    """Measure a model on one batch, in evaluation mode; costs S + 2 forward passes and one backward pass."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            losses_without, loss = _ablation_losses(model, batch)
        trace, gradient_sizes = _traced(model, batch)
        return _summarise(trace, gradient_sizes, losses_without, loss)
    finally:
        model.train(training)


def _ablation_losses(model: Model, batch: Batch) -> tuple[list[float], float]:
    """Return the loss with each sublayer's output removed from every read, and the loss with none removed."""
    inputs, targets = batch
    loss = float(loss_function(model(inputs), targets))

    def without(removed: int) -> float:
        def remove(number: int, output: Tensor) -> Tensor:
            return torch.zeros_like(output) if number == removed else output

        return float(loss_function(model(inputs, remove), targets))

    return [without(number) for number in range(1, model.architecture.sublayers + 1)], loss


def _traced(model: Model, batch: Batch) -> tuple[Trace, list[float]]:
    """Return the trace of a forward pass and ‖∂loss/∂v_l‖·‖v_l‖ of each sublayer."""
    inputs, targets = batch
    outputs: list[Tensor] = []

    def keep(number: int, output: Tensor) -> Tensor:
        if not output.requires_grad:
            output.requires_grad_()
        outputs.append(output)
        return output

    with torch.enable_grad():
        logits, trace = model.trace(inputs, keep)
        gradients = torch.autograd.grad(loss_function(logits, targets), outputs)
    sizes = [
        float(gradient.norm() * output.detach().norm()) for gradient, output in zip(gradients, outputs, strict=True)
    ]
    return trace, sizes


def _summarise(trace: Trace, gradient_sizes: list[float], losses_without: list[float], loss: float) -> Dilution:
    sources = [output.flatten(0, -2).float() for output in trace.outputs]
    sublayers = len(sources) - 1
    share = [shares(row, sources[: row.shape[1]]) for row in trace.matrix]
    newest = [float(of_read[-1]) for of_read in share[1:]]
    sizes = [_root_mean_square(source) for source in sources]
    reads = [read.flatten(0, -2).float() for read in trace.reads]
    metrics = {
        "dilution": dilution(newest),
        "effective_depth": effective_depth(losses_without, loss),
        "late_share": late_share(losses_without, loss),
        "gradient_gini": gini(gradient_sizes),
        "output_growth": slope(sizes[1:], range(1, sublayers + 1)),
    }
    profiles = {
        "newest_share": newest,
        "hidden_size": [_root_mean_square(read) for read in reads],
        "contribution_ratio": [_contribution_ratio(v, h) for v, h in zip(sources[1:], reads, strict=True)],
        "output_size": sizes[1:],
        "loss_increase_without": [without - loss for without in losses_without],
        "gradient_size": gradient_sizes,
        "routing_entropy": [routing_entropy(row) for row in trace.matrix[1:]],
        "embedding_share": [float(of_read[0]) for of_read in share[1:]],
        "mean_reach": [mean_reach(of_read) for of_read in share[1:]],
    }
    matrix = [row.abs().float().mean(dim=(0, 2)).tolist() for row in trace.matrix]
    return Dilution(metrics, profiles, matrix)


def _root_mean_square(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _contribution_ratio(output: Tensor, read: Tensor) -> float:
    """Return ‖f‖ / ‖h + f‖, mean over tokens."""
    return float((output.norm(dim=-1) / (read + output).norm(dim=-1).clamp_min(TINY)).mean())
