"""The `khop` task: k-hop induction (Sanford, Hsu, Telgarsky 2024, arXiv 2402.09268), the published probe of depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from resnas.record import CountOrZero
from resnas.tasks.task import Direction, Task, TaskShape

if TYPE_CHECKING:
    from resnas.tasks.khop_data import KHopData

FEWEST_SEQUENCES = 2**16
"""With fewer different sequences, the held-out ones would repeat one another."""


class KHop(Task):
    """Follow k hops back through a random sequence: from a letter to what came after its last occurrence, k times."""

    alphabet: Annotated[int, Field(ge=3, le=64)] = 4
    """Number of different letters; the larger, the less a shortcut can guess."""
    length: Annotated[int, Field(ge=8, le=1024)] = 32
    """Letters per example; the context has one more token, which says k."""
    max_hops: Annotated[CountOrZero, Field(le=64)] = 3
    """k is drawn uniformly from 0 to this."""

    @model_validator(mode="after")
    def _has_enough_sequences_and_room(self) -> KHop:
        sequences = self.alphabet * (self.alphabet - 1) ** (self.length - 1)
        if sequences < FEWEST_SEQUENCES:
            raise ValueError(
                f"alphabet {self.alphabet} and length {self.length} allow only {sequences} sequences; at least "
                f"{FEWEST_SEQUENCES} are needed: use a larger alphabet or length"
            )
        if self.max_hops * self.alphabet > self.length:
            raise ValueError(
                f"max_hops {self.max_hops} is too large: a hop goes back about {self.alphabet} letters (alphabet), so "
                f"length {self.length} has room for at most {self.length // self.alphabet}"
            )
        return self

    @property
    def metric_directions(self) -> dict[str, Direction]:
        """Accuracy over all defined positions, for each k, and above the best guess from the last two letters."""
        names = ["accuracy", "above_shortcut", *(f"accuracy_hop_{hops}" for hops in range(self.max_hops + 1))]
        return dict.fromkeys(names, "maximize")

    def shape(self) -> TaskShape:
        """Return letters and k tokens in, letters out, one prediction per position."""
        tokens = self.alphabet + self.max_hops + 1
        return TaskShape("tokens", tokens, self.length + 1, outputs=self.alphabet, causal=True, pooled=False)

    def load(self) -> KHopData:
        """Make the held-out examples."""
        from resnas.tasks.khop_data import KHopData

        return KHopData(self.alphabet, self.length, self.max_hops)

    def baselines(self) -> dict[str, float]:
        """Return the accuracy of a constant guess and of the best guess from the last two letters, in all and per k."""
        data = self.load()
        return {"accuracy/constant guess": 1 / self.alphabet, **data.shortcut_baselines("validation")}
