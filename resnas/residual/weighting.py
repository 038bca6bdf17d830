"""What the weightings of both tapes have in common: the weights of one forward pass, outside of autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class Weighting(ABC):
    """Where the weights of one forward pass come from, and the way back from their gradients."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters

    def written(self, source: int, value: Tensor) -> None:  # noqa: B027 - static weights need no source
        """Take note of a new source [tokens, width]."""

    def start_backward(self) -> None:  # noqa: B027 - not all keep something between
        """Forget what an earlier backward pass over the same graph, or over a part of it, has left."""

    def product(self, gradient: Tensor, value: Tensor) -> Tensor:
        """Return the gradient of the weight of a value in a read with this gradient, both [tokens, width].

        The default is for one weight per token: [tokens].
        """
        products: Tensor = torch.linalg.vecdot(gradient, value)
        return products

    def source_gradient(self, source: int, value: Tensor) -> Tensor | None:
        """Return what flows into a source through the weights of later reads."""
        return None

    @abstractmethod
    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of `parameters`, after the last write of the backward pass."""


def inverse_root_mean_square(value: Tensor, epsilon: float) -> Tensor:
    """Return 1 / rms per token [tokens] of values [tokens, width]."""
    return torch.rsqrt(torch.linalg.vector_norm(value, dim=-1).square_().div_(value.shape[-1]).add_(epsilon))


def through_norm_(gradient: Tensor, value: Tensor, inverse_rms: Tensor) -> Tensor:
    """Turn, in place, a gradient of value / rms times 1 / rms into the gradient of value [tokens, width]."""
    projection = torch.linalg.vecdot(gradient, value).mul_(inverse_rms.square()).div_(value.shape[-1])
    return gradient.addcmul_(value, projection.unsqueeze(-1), value=-1)
