"""Expected time of a tree's slowest link, if some of the present loads are gone before the tree is used.

Among flows that come and go, a busy link may be idle during the next step, and an idle one busy. Let p be the
`persistence` of the problem. Each directed link of the tree keeps its load with probability p. Else its load is one of
those that links between switches have now, each with the same probability. Links are independent. With F for the
distribution of time per byte and unit of rate over all links between switches:

    P(slowest ≤ t) = Π_e (p [T_e ≤ t] + (1 − p) F(t c_e)),        E[slowest] = Σ_t t P(slowest = t),

With p = 1 this is the slowest link's present time. The smaller p, the more each further link of a tree costs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .cost import PlacementCosts
from .problem import Placement

_QUANTILES: Final = 64
"""Number of values by which the loads of a large fabric are represented."""


def expected_slowest_seconds(costs: PlacementCosts, placement: Placement, persistence: float) -> float:
    """Return E[slowest] in seconds; of equal-cost paths all links count.

    Args:
        costs: Present times of the problem's links.
        placement: A tree over the job's hosts.
        persistence: p, 0…1.
    """
    links, streams = costs.links, costs.loads(placement)
    between, used = links.pair_of >= 0, streams > 0
    seconds = streams * costs.seconds + costs.others
    access = float(seconds[used & ~between].max(initial=0.0))
    inside = (used & between).nonzero()[0]
    if not len(inside):
        return access
    slowness = costs.seconds[between] * links.rate_bps[between]
    if len(slowness) > _QUANTILES:
        slowness = np.quantile(slowness, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    slowness = np.sort(slowness)
    now, scale = seconds[inside], streams[inside] / links.rate_bps[inside]
    redrawn = costs.others[inside][:, None] + scale[:, None] * slowness
    times = np.unique(np.concatenate((now, redrawn.ravel())))
    below = np.array([np.searchsorted(row, times, side="right") for row in redrawn]) / len(slowness)
    at_most = (persistence * (now[:, None] <= times) + (1 - persistence) * below).prod(axis=0)
    return float(np.maximum(times, access) @ np.diff(at_most, prepend=0.0))
