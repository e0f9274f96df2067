"""Sincronia (Agarwal et al., SIGCOMM 2018): coflows by bottleneck, select, scale, iterate.

A coflow is a job's rest of its stage, which is more than a network that sees single steps can know. It does not know
which jobs end a stage together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..demand import Demand
from ..order import Description, Order, of_jobs
from ..primal_dual import primal_dual_order


def compute(demands: Sequence[Demand]) -> Order:
    """Return the jobs in the primal-dual order of their remaining demands."""
    if not demands:
        return ()
    steps = np.array([demand.steps_left for demand in demands])
    seconds = steps[:, None] * np.stack([demand.link_seconds for demand in demands])
    weights = np.array([demand.weight for demand in demands])
    return of_jobs(demands[item] for item in primal_dual_order(seconds, weights))


DESCRIPTION: Final = Description(
    "sincronia", "Sincronia", "primal-dual order of the jobs' remaining steps, cojobs unknown", "steps", compute
)
