"""One architecture: the frozen record of chosen values, its stable key, and its properties (what the surrogate sees).

It is the whole of what a trial is told about what to train: the stack, the residual topology and how it is optimised.
The task gives the shape of inputs and outputs, the study gives the budget; neither belongs here.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_serializer, field_validator, model_validator

from resnas.record import Count, NonNegative, Positive, Record, Share, class_name, make_named
from resnas.residual import TOPOLOGIES, Fixed, Topology
from resnas.residual.topology import Scalar

Norm = Literal["pre", "post", "sandwich"]
BranchScale = Literal["none", "1/sqrt(layer)"]


class Stack(Record):
    """The Transformer stack around the residual topology."""

    depth: Count = 8
    """Layers; a layer is two sublayers, attention and MLP."""
    width: Count = 48
    """Features of the stream."""
    heads: Count = 4
    """Attention heads; must divide the width into an even number of features each."""
    mlp: Literal["gelu", "swiglu"] = "gelu"
    """Kind of MLP; swiglu gets two thirds of the hidden width, so that both have about the same parameters."""
    mlp_ratio: Positive = 4.0
    """Hidden width of the MLP over `width`."""
    positions: Literal["rope", "learned"] = "rope"
    """Rotary positions inside attention, or a learned vector added to the embedding."""
    norm: Norm = "pre"
    """Where RMSNorm stands: before the sublayer, after the sum (the original Transformer), or before and after the
    sublayer."""
    branch_scale: BranchScale = "none"
    """Multiply what a sublayer consumes by 1/sqrt(layer) (LayerNorm Scaling, arXiv 2502.05795), or not."""

    @property
    def sublayers(self) -> int:
        """Two per layer: attention and MLP."""
        return 2 * self.depth

    @property
    def mlp_width(self) -> int:
        """Hidden features of the MLP."""
        share = 2 / 3 if self.mlp == "swiglu" else 1
        return max(1, round(share * self.mlp_ratio * self.width))

    def infeasible(self) -> str | None:
        """Return why this stack cannot be built, or None."""
        if self.width % self.heads:
            return f"width {self.width} is not divisible by heads {self.heads}"
        if self.positions == "rope" and self.width // self.heads % 2:
            given = f"{self.width // self.heads} (width {self.width}, heads {self.heads})"
            return f"rope needs an even number of features per head, not {given}"
        return None


class Training(Record):
    """How an architecture is optimised (AdamW, linear warm-up, cosine decay to a tenth)."""

    learning_rate: Positive = 3e-3
    """Peak learning rate."""
    mixing_lr_multiplier: Positive = 1.0
    """Learning rate of the mixing parameters (scalars, queries) over `learning_rate`."""
    weight_decay: NonNegative = 0.1
    """On matrices only; norms and mixing parameters are never decayed."""
    warmup_share: Share = 0.1
    """Share of the steps in which the learning rate rises linearly."""
    gradient_clip: NonNegative = 1.0
    """Largest norm of the whole gradient; 0 switches clipping off."""


class Architecture(Stack):
    """A stack, its residual topology and its training: everything that a search may choose."""

    residual: Topology = Field(default_factory=Fixed)
    """The residual topology: its name, or {name: {option: value}}."""
    training: Training = Field(default_factory=Training)

    @field_validator("residual", mode="before")
    @classmethod
    def _topology_from_name(cls, value: Any) -> Any:
        return make_named(value, TOPOLOGIES, Topology, "residual topology")

    @model_validator(mode="after")
    def _canonical_topology(self) -> Architecture:
        canonical = self.residual.canonical(self.sublayers)
        if canonical != self.residual:
            object.__setattr__(self, "residual", canonical)
        return self

    @field_serializer("residual")
    def _topology_to_name(self, topology: Topology) -> dict[str, Any]:
        return {class_name(type(topology), TOPOLOGIES): topology.model_dump()}

    @property
    def family(self) -> str:
        """The YAML name of the residual topology."""
        return class_name(type(self.residual), TOPOLOGIES)

    @property
    def key(self) -> str:
        """Ten hexadecimal digits that stand for these values on every machine: sha256 of the canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def label(self) -> str:
        """A short name for tables: the family and those of its options that are not the default."""
        options = self.residual.model_dump(exclude_defaults=True)
        listed = ", ".join(f"{name} {_plain(value)}" for name, value in options.items())
        return f"{self.family} ({listed})" if listed else self.family

    def properties(self) -> dict[str, Scalar]:
        """Return what the surrogate sees: flat, named as in `PROPERTIES`; None where a property does not apply.

        The mixing multiplier does not apply where nothing in the depth-mixing matrix is trained.
        """
        residual = self.residual.properties(self.sublayers)
        stack = {name: getattr(self, name) for name in Stack.model_fields}
        training = self.training.model_dump()
        if not residual["weights_learned"]:
            training["mixing_lr_multiplier"] = None
        mixing = {"mixing_parameters": self.residual.mixing_parameters(self.sublayers, self.width)}
        conditional: dict[str, Scalar] = dict.fromkeys(("key_norm", "window_sources", "per_channel"))
        return {
            "family": self.family,
            **conditional,
            **residual,
            **mixing,
            **stack,
            **training,
        }


def _plain(value: Any) -> str:
    """Write a value as YAML does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Property(NamedTuple):
    """What a property means: its unit, one sentence, and the YAML option that sets it."""

    unit: str
    meaning: str
    option: str


PROPERTIES: dict[str, Property] = {
    "family": Property("name", "residual topology", "architecture.residual"),
    "key_norm": Property("name", "normalisation of a source before its product with the query", "key_norm"),
    "window_sources": Property("sources", "newest sources that a read sees one by one", "window"),
    "embedding_kept": Property("yes/no", "every read sees the embedding on its own", "keep_embedding"),
    "old_sources": Property("name", "what happens to old sources: kept, pooled or dropped", "old_sources"),
    "per_channel": Property("yes/no", "one learned weight per feature", "per_channel"),
    "depth": Property("layers", "layers of the stack", "architecture.depth"),
    "width": Property("features", "features of the stream", "architecture.width"),
    "heads": Property("heads", "attention heads", "architecture.heads"),
    "mlp": Property("name", "kind of MLP", "architecture.mlp"),
    "mlp_ratio": Property("ratio", "hidden width of the MLP over the width", "architecture.mlp_ratio"),
    "positions": Property("name", "how positions are told", "architecture.positions"),
    "norm": Property("name", "where the norms stand", "architecture.norm"),
    "branch_scale": Property("name", "scale of what a sublayer consumes", "architecture.branch_scale"),
    "learning_rate": Property("1/step", "peak learning rate", "training.learning_rate"),
    "mixing_lr_multiplier": Property(
        "ratio", "learning rate of mixing parameters over the learning rate", "training.mixing_lr_multiplier"
    ),
    "weight_decay": Property("1/step", "weight decay of matrices", "training.weight_decay"),
    "warmup_share": Property("share", "share of steps with rising learning rate", "training.warmup_share"),
    "gradient_clip": Property("norm", "largest gradient norm", "training.gradient_clip"),
    "weights_learned": Property("yes/no", "parameters in the depth-mixing matrix are trained", "architecture.residual"),
    "token_dependent": Property("yes/no", "mixing weights differ from token to token", "architecture.residual"),
    "normalised": Property("yes/no", "the mixing weights of a read sum to one", "architecture.residual"),
    "sources_per_read": Property("sources", "mean number of weights per read", "architecture.residual, window, depth"),
    "reach": Property(
        "share", "mean share of the earlier sources that a read can see", "architecture.residual, window, depth"
    ),
    "mixing_parameters": Property(
        "parameters", "trained parameters of the depth-mixing matrix", "architecture.residual, depth, width"
    ),
}
"""Those that an option sets come before those that follow from several."""
