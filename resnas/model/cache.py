"""The keys and values of earlier tokens, kept so that generation computes each token once.

Shapes: B examples, T tokens.
"""

from __future__ import annotations

from torch import Tensor

from resnas.errors import InputError


class KeyValueCache:
    """Keys and values of one batch of examples, for each attention sublayer of one model; `Model.new_cache` makes it.

    Storage is made when the first keys come, in their precision and on their device.

    Attributes:
        capacity: how many tokens there is room for.
        length: how many tokens there are; set it back to forget the newest ones.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._stored: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> two of [B, heads, capacity, features]

    def check_room(self, examples: int, tokens: int) -> None:
        """Raise InputError unless `tokens` more tokens of that many examples fit."""
        if self.length + tokens > self.capacity:
            raise InputError(
                f"{tokens} more tokens do not fit: the cache holds {self.length} of at most {self.capacity} tokens"
            )
        held = len(self._stored[min(self._stored)][0]) if self.length > 0 else examples
        if held != examples:
            raise InputError(f"tokens of {examples} examples cannot follow: the cache holds {held} examples")

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put the keys and values of T new tokens, each [B, heads, T, features], after the `length` ones of a layer.

        `length` stays as it is until all layers have theirs.

        Returns:
            The keys and the values of all tokens, each a view [B, heads, length + T, features].
        """
        if self.length == 0:
            batch, heads, _, features = keys.shape
            room = (batch, heads, self.capacity, features)
            self._stored[layer] = keys.new_empty(room), values.new_empty(room)
        stop = self.length + keys.shape[2]
        known_keys, known_values = (stored[:, :, :stop] for stored in self._stored[layer])
        known_keys[:, :, self.length :] = keys
        known_values[:, :, self.length :] = values
        return known_keys, known_values
