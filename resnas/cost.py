"""Parameters and FLOPs of an architecture in closed form, so that a space can be checked without torch.

Counting is that of `torch.utils.flop_counter` on the meta device: two FLOPs per multiply-add of matrix products, the
full square of attention even where it is causal. Tests compare both counts with the built model.
"""

from __future__ import annotations

from resnas.architecture import Architecture
from resnas.tasks.task import TaskShape

CPU_FLOPS_PER_S = 8e10
SUBLAYER_OVERHEAD_S = 1e-3
"""Of one CPU core in a training step of a small model, measured on one machine; only for guesses of time."""


def parameters(architecture: Architecture, shape: TaskShape) -> int:
    """Return the number of trained parameters of the model."""
    width, depth = architecture.width, architecture.depth
    embedding = shape.input_size * width
    positions = shape.context * width if architecture.positions == "learned" else 0
    norms_per_sublayer = {"pre": 1, "sandwich": 2, "post": 0}[architecture.norm]
    norms = (norms_per_sublayer * architecture.sublayers + 1) * width
    mixing = architecture.residual.mixing_parameters(architecture.sublayers, width)
    head = width * shape.outputs
    return embedding + positions + depth * _matrix_parameters_per_layer(architecture) + norms + mixing + head


def flops(architecture: Architecture, shape: TaskShape) -> int:
    """Return the FLOPs of one forward pass over one example; a training step costs about three times as much."""
    width, tokens = architecture.width, shape.context
    embedding = 2 * shape.input_size * width * tokens if shape.inputs == "patches" else 0
    matrices = 2 * _matrix_parameters_per_layer(architecture) * tokens
    attention = 4 * tokens * tokens * width
    mixing = architecture.residual.mixing_flops(architecture.sublayers, width) * tokens
    head = 2 * width * shape.outputs * (1 if shape.pooled else tokens)
    return embedding + architecture.depth * (matrices + attention) + mixing + head


def training_time_s(architecture: Architecture, shape: TaskShape, steps: int, batch_size: int) -> float:
    """Guess the seconds that training takes on one CPU core: good to a factor of three or so."""
    step_flops = 3 * batch_size * flops(architecture, shape)
    return steps * (step_flops / CPU_FLOPS_PER_S + architecture.sublayers * SUBLAYER_OVERHEAD_S)


def _matrix_parameters_per_layer(architecture: Architecture) -> int:
    """Query, key, value, output, and the two (gelu) or three (swiglu) matrices of the MLP."""
    width = architecture.width
    mlp_matrices = 3 if architecture.mlp == "swiglu" else 2
    return 4 * width * width + mlp_matrices * width * architecture.mlp_width
