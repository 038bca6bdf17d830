"""The Transformer stack around any residual topology: `Model(architecture, shape)`.

`stack` is the model and its one forward pass; `blocks` are the parts that it is made of.
"""

from resnas.model.blocks import RMSNorm, RotaryPositions, root_mean_square_normalised
from resnas.model.stack import Model, Trace, loss_function, through_post_norms

__all__ = [
    "Model",
    "RMSNorm",
    "RotaryPositions",
    "Trace",
    "loss_function",
    "root_mean_square_normalised",
    "through_post_norms",
]
