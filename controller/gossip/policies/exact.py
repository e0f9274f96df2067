"""The exact policy: the faster one by the exact rate of the semidefinite program's and uniform gossip.

The program maximises a bound of one step (`program`). The bound is loose beside one worker whose pairs are all slow,
and uniform gossip can agree sooner there. So both are judged by `convergence.decay_per_second`.
"""

from __future__ import annotations

from typing import Final

from ..convergence import decay_per_second
from ..policy import Floats, GossipPolicy, PolicyDescription
from ..program import largest_bound
from . import uniform


def compute(seconds: Floats) -> GossipPolicy:
    """Return the policy under which disagreement falls fastest.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.

    Raises:
        GossipError: The times cannot be, or the solver finds no optimum.
    """
    return max(largest_bound(seconds), uniform.compute(seconds), key=lambda policy: decay_per_second(seconds, policy))


DESCRIPTION: Final = PolicyDescription(
    "exact", "exact gossip", "a semidefinite program's policy or uniform gossip, the faster by the exact rate", compute
)
