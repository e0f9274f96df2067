"""Grouper (Zhou, Yu, Sun, IEEE TNSM 17(3), 2020), reconstructed: stages of cojobs in the primal-dual order.

The paper orders stages by a linear program and its dual; its own program is not public. This reconstruction uses the
program of `primal_dual`, over all directed links of the fabric, with stages as items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..demand import Demand, stages
from ..order import Order, OrderDescription, of_stages
from ..primal_dual import primal_dual_order


def compute(demands: Sequence[Demand]) -> Order:
    """Return the stages in the primal-dual order of their remaining demands."""
    ordered = stages(demands)
    if not ordered:
        return ()
    seconds = np.array([stage.seconds for stage in ordered])
    weights = np.array([stage.weight for stage in ordered])
    return of_stages(ordered[item] for item in primal_dual_order(seconds, weights))


DESCRIPTION: Final = OrderDescription(
    "grouper", "Grouper", "primal-dual order of the cojobs' remaining stages", "stages", compute
)
