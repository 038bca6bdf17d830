"""Residual topologies: their YAML options (torch-free, here) and their rules for the depth-mixing matrix (beside).

A new topology is a subclass of `Topology` that returns a `resnas.residual.rule.Rule`; name it in `TOPOLOGIES`, or in
YAML as `package.module:Class`.
"""

from resnas.residual.families import (
    TOPOLOGIES,
    Fixed,
    FullDepthAttention,
    ScalarLearned,
    WindowedDepthAttention,
)
from resnas.residual.topology import Topology

__all__ = ["TOPOLOGIES", "Fixed", "FullDepthAttention", "ScalarLearned", "Topology", "WindowedDepthAttention"]
