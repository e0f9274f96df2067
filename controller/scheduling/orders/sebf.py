"""Smallest effective bottleneck first (Varys: Chowdhury et al., SIGCOMM 2014), for the coflow of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand
from ..order import Order, OrderDescription, of_jobs


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs by the seconds of their busiest link in one step."""
    return of_jobs(sorted(demands, key=lambda demand: demand.bottleneck_seconds))


DESCRIPTION: Final = OrderDescription(
    "sebf", "SEBF (Varys)", "jobs by the busiest link of one step, the shortest first", "nothing", compute
)
