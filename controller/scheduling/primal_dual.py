"""Order of concurrent open shop by the primal-dual method, for coflows (Sincronia) and for stages (Grouper).

Each link is a machine, and link e needs d_j(e) seconds for item j. With w_j the weights, the linear program

    min Σ w_j C_j   subject to   Σ_{j∈S} d_j(e) C_j ≥ ½ [(Σ_{j∈S} d_j(e))² + Σ_{j∈S} d_j(e)²]   for all links e, sets S

has a dual. Its variables are y(e, S) ≥ 0 for each constraint, with Σ_{e, S∋j} d_j(e) y(e, S) ≤ w_j for each item. Items
get their places from last to first:

1. Take the link μ with the largest demand of the items without a place.
2. Raise y(μ, those items) until the constraint of one of them is tight. That is argmin w_j / d_j(μ), with w_j what
   earlier raises have left of the weight.
3. Place that item last of those without a place.

The order is within a factor of 2 of the optimum of concurrent open shop (Mastrolilli et al., Operations Research
Letters 38(5), 2010). That factor does not cover jobs that compute between their steps or that move in step over several
links.
"""

from __future__ import annotations

import numpy as np

from .demand import Floats


def primal_dual_order(seconds: Floats, weights: Floats) -> list[int]:
    """Return the items in the order in which they are served.

    Args:
        seconds: (items, links): demand of each item on each link in s.
        weights: (items,): weight of each item's completion time.
    """
    left = np.array(weights, np.float64)
    totals = seconds.sum(axis=0)
    unplaced = np.ones(len(seconds), np.bool_)
    backwards: list[int] = []
    while unplaced.any():
        items = np.flatnonzero(unplaced)
        link = int(totals.argmax()) if totals.size else -1
        on_link = seconds[items, link] if totals.size else np.zeros(len(items))
        served = on_link > 0
        if not served.any():
            backwards.extend(int(item) for item in items[::-1])
            break
        ratios = np.where(served, left[items] / np.where(served, on_link, 1.0), np.inf)
        # of equal items the one that came last is served last
        last = int(items[len(items) - 1 - int(ratios[::-1].argmin())])
        dual = left[last] / seconds[last, link]
        left[items] -= dual * on_link
        totals -= seconds[last]
        unplaced[last] = False
        backwards.append(last)
    return backwards[::-1]
