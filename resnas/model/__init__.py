"""The Transformer stack around any residual topology: `Model(architecture, shape)`.

`stack` is the model, its one forward pass and generation; `blocks` are the parts that it is made of; `cache` keeps the
keys and values of earlier tokens; `generation` checks a prompt and chooses the next token.
"""

from resnas.model.blocks import RMSNorm, RotaryPositions, root_mean_square_normalised
from resnas.model.cache import KeyValueCache
from resnas.model.stack import Model, Trace, loss_function, through_post_norms

__all__ = [
    "KeyValueCache",
    "Model",
    "RMSNorm",
    "RotaryPositions",
    "Trace",
    "loss_function",
    "root_mean_square_normalised",
    "through_post_norms",
]
