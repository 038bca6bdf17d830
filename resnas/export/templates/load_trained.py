"""The trained parameters of the exported depth mixing. Needs torch and safetensors."""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open

from resnas.export.templates.fixed import DepthMixing

WEIGHTS = Path(__file__).with_name("model.safetensors")
PREFIX = "residual."
"""How the names of the mixing parameters begin among those of the whole model."""


def load_trained(path: str | Path = WEIGHTS) -> DepthMixing:
    """Return the depth mixing with the parameters of an exported model."""
    mixing = DepthMixing()
    with safe_open(str(path), framework="pt") as weights:
        mixing.load_state_dict({name: weights.get_tensor(PREFIX + name) for name in mixing.state_dict()})
    return mixing
