"""Sincronia (Agarwal et al., SIGCOMM 2018): coflows by bottleneck, select, scale, iterate.

A coflow is one step of a job, which a network can know by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..demand import Demand, used_links
from ..order import Order, OrderDescription, of_jobs
from ..primal_dual import primal_dual_order


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs in the primal-dual order of one step's demands."""
    if not demands:
        return ()
    seconds = used_links(demands)
    weights = np.array([demand.weight for demand in demands])
    return of_jobs(demands[item] for item in primal_dual_order(seconds, weights))


DESCRIPTION: Final = OrderDescription(
    "sincronia", "Sincronia", "jobs in the primal-dual order of one step's demands", "nothing", compute
)
