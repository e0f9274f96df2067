"""Steady gossip: the semidefinite program with limits, so that no slow link stops training.

Policies for fast agreement pull over slow pairs as often as agreement needs. Workers compute little meanwhile, and
pulls that meet on one slow link take longer than any iteration time says. Here every worker makes at least half of the
iterations that it would make alone, and long pulls keep no worker's link busy for more than half of the time.
"""

from __future__ import annotations

from typing import Final

from ..policy import Floats, GossipPolicy, PolicyDescription
from ..program import largest_bound

FLOOR: Final = 0.5
"""Least share of the iterations that a worker makes without pulls."""
BUSY: Final = 0.5
"""Largest share of time in which long pulls use a worker's link: at one half, a pull waits for half of another one."""


def compute(seconds: Floats) -> GossipPolicy:
    """Return the policy with the largest bound within the limits.

    Args:
        seconds: (workers, workers) as `policy.Compute` takes it.

    Raises:
        GossipError: The times cannot be, or the solver finds no optimum.
    """
    return largest_bound(seconds, floor=FLOOR, busy=BUSY)


DESCRIPTION: Final = PolicyDescription(
    "steady", "steady gossip", "a semidefinite program whose slow pairs cost at most half of the iterations", compute
)
