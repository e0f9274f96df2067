"""Sincronia with knowledge of stages: a coflow is a job's rest of its stage.

It does not know which jobs end their stage together, which is what Grouper adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..demand import Demand, used_links
from ..order import Order, OrderDescription, of_jobs
from ..primal_dual import primal_dual_order


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs in the primal-dual order of their remaining demands."""
    if not demands:
        return ()
    steps = np.array([demand.steps_left for demand in demands])
    seconds = steps[:, None] * used_links(demands)
    weights = np.array([demand.weight for demand in demands])
    return of_jobs(demands[item] for item in primal_dual_order(seconds, weights))


DESCRIPTION: Final = OrderDescription(
    "sincronia-rest",
    "Sincronia, steps left known",
    "jobs in the primal-dual order of their remaining steps, cojobs unknown",
    "steps",
    compute,
)
