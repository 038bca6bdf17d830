"""What generation needs beside the stack: checks of what it is given, and the choice of the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from resnas.errors import InputError
from resnas.tasks.task import TaskShape


@dataclass(frozen=True)
class Sampler:
    """How the next token is chosen; the attributes are the options of `resnas.model.Model.generate`."""

    temperature: float
    top_k: int | None
    generator: torch.Generator | None

    def check(self, outputs: int) -> None:
        """Raise InputError for an option out of its range."""
        if not self.temperature >= 0:
            raise InputError(f"the temperature must be at least 0, not {self.temperature}")
        if self.top_k is not None and not 1 <= self.top_k <= outputs:
            raise InputError(f"top_k must be from 1 to {outputs} (the number of classes), not {self.top_k}")

    def draw(self, logits: Tensor) -> Tensor:
        """Return a token [B, 1] for each row of logits [B, outputs]."""
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        if self.top_k is None:
            return self._drawn(logits)
        likeliest, tokens = logits.topk(self.top_k)
        return tokens.gather(-1, self._drawn(likeliest))

    def _drawn(self, logits: Tensor) -> Tensor:
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.multinomial((precise / self.temperature).softmax(-1), 1, generator=self.generator)


def check_task(shape: TaskShape) -> None:
    """Raise InputError unless a model of this task can go on from earlier tokens."""
    reasons = {
        "its inputs are patches": shape.inputs != "tokens",
        "it is an encoder, whose positions see later ones": not shape.causal,
        "it has one prediction per example": shape.pooled,
    }
    for reason, applies in reasons.items():
        if applies:
            raise InputError(f"only a decoder of tokens goes on token by token; this model does not: {reason}")


def check_capacity(capacity: int, shape: TaskShape) -> None:
    """Raise InputError unless a cache of this size is of use."""
    if not 1 <= capacity <= shape.context:
        raise InputError(f"a cache has room for 1 to {shape.context} tokens (the context), not {capacity}")


def whole_numbers(tokens: Tensor, name: str) -> Tensor:
    """Return token numbers [B, T] as int64. Raises InputError where they are anything else, or none."""
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name} must be a tensor of whole numbers [examples, tokens], not {type(tokens).__name__}")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise InputError(f"{name} must be a tensor of whole numbers [examples, tokens], not of {tokens.dtype}")
    if tokens.dim() != 2 or tokens.numel() == 0:
        raise InputError(f"{name} must be [examples, tokens], at least one of each, not {list(tokens.shape)}")
    return tokens.long()


def checked_prompt(prompt: Tensor, new_tokens: int, sampler: Sampler, shape: TaskShape) -> Tensor:
    """Return the prompt [B, T] as int64. Raises InputError where the model cannot go on from it as it is told to."""
    check_task(shape)
    sampler.check(shape.outputs)
    prompt = whole_numbers(prompt, "the prompt")
    tokens = prompt.shape[1]
    if new_tokens < 0:
        raise InputError(f"new_tokens must be at least 0, not {new_tokens}")
    if tokens + new_tokens > shape.context:
        raise InputError(
            f"a prompt of {tokens} tokens and {new_tokens} new ones are more than the context of {shape.context} tokens"
        )
    if shape.outputs > shape.input_size:
        raise InputError(f"the {shape.outputs} classes of this model cannot all be tokens: it knows {shape.input_size}")
    lowest, highest = (int(bound) for bound in prompt.aminmax())
    if lowest < 0 or highest >= shape.input_size:
        wrong = lowest if lowest < 0 else highest
        raise InputError(f"the prompt holds {wrong}; its token numbers must be from 0 to {shape.input_size - 1}")
    return prompt
