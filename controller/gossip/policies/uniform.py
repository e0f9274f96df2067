"""Uniform gossip: every neighbour with the same probability, and the best pull weight that all share."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..convergence import decay_per_second
from ..policy import Floats, GossipPolicy, PolicyDescription, check_seconds, neighbours

_WEIGHTS: Final = np.linspace(0.05, 1.0, 20)
"""Pull weights that are tried."""


def compute(seconds: Floats) -> GossipPolicy:
    """Return the uniform policy whose pull weight has the best exact rate. Raises GossipError.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.
    """
    check_seconds(seconds)
    allowed = neighbours(seconds)
    probabilities = allowed / allowed.sum(axis=1, keepdims=True)
    tried = [GossipPolicy(probabilities, weight * allowed) for weight in _WEIGHTS]
    return max(tried, key=lambda policy: decay_per_second(seconds, policy))


DESCRIPTION: Final = PolicyDescription(
    "uniform", "uniform gossip", "every neighbour alike, with the best common pull weight", compute
)
