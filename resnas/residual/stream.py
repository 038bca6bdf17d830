"""Autograd around a tape: a stream whose graph has a node per read and per write, in an order that a tape can use.

The backward pass mirrors the forward pass:

* the node of read l stores its incoming gradient g_l and tells the weighting the gradient of its weights; it returns
  nothing to the sources;
* the node of write i runs when all reads l > i have run, and gathers the whole gradient of source i at once:
  sum over l of M_(i to l) g_l, plus what flows through the weights.

That order is enforced by scalar handles: each write takes the handle of the write before it and returns its own, and
each read takes the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from resnas.residual.dense import DenseTape
from resnas.residual.rule import Stream
from resnas.residual.tape import Tape

Method = TypeVar("Method", bound=Callable[..., Any])


def _not_compiled(method: Method) -> Method:
    """Let `torch.compile` call a method instead of tracing it."""
    return torch.compiler.disable(method)  # type: ignore[no-any-return]


class TapeStream(Stream):
    """A stream over a tape.

    `torch.compile` leaves it alone: every read has another number of sources, which would be compiled one by one, and
    the order of the backward pass is kept in Python. The sublayers between are compiled.
    """

    @_not_compiled
    def __init__(self, tape: Tape | DenseTape, embedding: Tensor) -> None:
        self._shape = embedding.shape
        self._dtype = embedding.dtype
        self._tape = tape
        self._graph = _Graph(tape)
        self._handle = _Start.apply(self._graph, embedding.flatten(0, -2), *tape.weighting.parameters)

    @_not_compiled
    def read(self) -> Tensor:
        """Return the mixture of the sources so far."""
        mixed: Tensor = _Read.apply(self._graph, self._handle)
        return mixed.reshape(self._shape)

    @_not_compiled
    def write(self, source: Tensor) -> None:
        """Append a source; it is kept in the embedding's precision."""
        flat = source.flatten(0, -2).to(self._dtype)
        self._handle = _Write.apply(self._graph, flat, self._handle)

    def mixing_matrix(self) -> list[Tensor]:
        """Return the weights, a pooled group's weight standing for each of its sources."""
        return self._tape.rows()


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Keep autocast away from the logits and sums of a tape."""
    enabled = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


class _Graph:
    """What the autograd nodes of one forward pass share: the tape, until a backward pass frees it."""

    def __init__(self, tape: Tape | DenseTape) -> None:
        self.tape = tape
        self._released = False
        self._pass = -1

    def enter(self) -> Tape | DenseTape:
        """Return the tape to a node of a backward pass."""
        if self._released:
            raise RuntimeError(
                "Trying to go backward through a depth-mixing stream a second time, but its sources have been freed; "
                "give retain_graph=True to the first backward pass"
            )
        task = torch._C._current_graph_task_id()
        if task != self._pass:  # a repeated pass, or a pass over another part of the graph
            self._pass = task
            self.tape.start_backward()
        return self.tape

    def leave(self) -> None:
        """Free the tape, unless the graph is to be walked again: a graph may live as long as its loss."""
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self._released = True
            del self.tape


class _Start(Function):
    """Source 0 and the parameters of the weighting; its backward pass runs last."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, embedding: Tensor, *parameters: Tensor) -> Tensor:
        ctx.graph = graph
        with full_precision(embedding.device):
            graph.tape.append(embedding.detach())
        return embedding.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, handle: Tensor) -> Any:
        with full_precision(handle.device):
            tape = ctx.graph.enter()
            gradients = tape.source_gradient(0), *tape.weighting.parameter_gradients()
            ctx.graph.leave()
            return None, *gradients


class _Write(Function):
    @staticmethod
    def forward(ctx: Any, graph: _Graph, source: Tensor, handle: Tensor) -> Tensor:
        ctx.graph, ctx.source = graph, graph.tape.written
        with full_precision(source.device):
            graph.tape.append(source.detach())
        return source.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, handle: Tensor) -> Any:
        with full_precision(handle.device):
            return None, ctx.graph.enter().source_gradient(ctx.source), handle


class _Read(Function):
    @staticmethod
    def forward(ctx: Any, graph: _Graph, handle: Tensor) -> Tensor:
        ctx.graph, ctx.read = graph, graph.tape.written
        with full_precision(handle.device):
            return graph.tape.read()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        with full_precision(gradient.device):
            ctx.graph.enter().read_backward(ctx.read, gradient.contiguous())
        return None, gradient.new_zeros(())
