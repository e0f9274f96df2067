"""JPAS (Zhou et al., JNCA 158, 2020), reconstructed: jobs by their predicted gain of accuracy per second of network.

The paper's policy is a greedy order that is renewed periodically; its predictor is not public. Jobs that have reported
too little to predict go first, for their gain may be large. Jobs past 95 % of their predicted final gain go last.
A job without a completed step for GUARD_PERIODS periods goes before all others until it has completed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand
from ..order import Order, OrderDescription, of_jobs

GUARD_PERIODS: Final = 20


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs by their score, the largest first; of equal ones, the oldest."""
    return of_jobs(sorted(demands, key=_key))


def _key(demand: Demand) -> tuple[int, float, float]:
    if demand.periods_waited >= GUARD_PERIODS:
        return 0, -demand.periods_waited, demand.begun_seconds
    if demand.gain_per_step is None:
        return 1, 0.0, demand.begun_seconds
    score = demand.gain_per_step / max(demand.bottleneck_seconds, 1e-12)
    return (3 if demand.converged else 2), -score, demand.begun_seconds


DESCRIPTION: Final = OrderDescription(
    "jpas", "JPAS", "jobs by predicted gain of accuracy per second of network, the largest first", "progress", compute
)
