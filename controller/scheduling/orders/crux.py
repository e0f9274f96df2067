"""Intensity of computation, as Crux (Cao et al., SIGCOMM 2024) orders jobs for the use of a cluster's accelerators.

The intensity is a step's computation of all workers over the seconds of its busiest link. Crux also corrects
priorities by profiled traffic patterns; that part is not public in full and not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand
from ..order import Order, OrderDescription, of_jobs


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs by their intensity, the largest first."""
    return of_jobs(sorted(demands, key=lambda demand: -_intensity(demand)))


def _intensity(demand: Demand) -> float:
    return demand.workers * demand.compute_seconds / max(demand.bottleneck_seconds, 1e-12)


DESCRIPTION: Final = OrderDescription(
    "crux", "intensity (Crux)", "jobs by computation per second of network, the largest first", "nothing", compute
)
