"""Persistence of links' loads: the share of the present picture that is still there one horizon later.

It is the autocorrelation of the loads of all links between switches, with the mean over links and readings subtracted:
1 while every link keeps its load, about 0 if a link's next load is as any link's. A link that is always busier than
others counts as persistent. Pure, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...topologies.model import Endpoint
from ..placement.model.links import Floats, Links
from ..placement.model.loads import LinkLoad

Reading = tuple[float, Mapping[Endpoint, LinkLoad]]
"""Time in seconds, and the loads of links; a missing link is idle."""


def persistence(links: Links, readings: Sequence[Reading], horizon_s: float) -> float:
    """Return the autocorrelation of loads after `horizon_s`, 0…1; 1 without two readings or without any difference.

    Each reading is compared with the first one that is at least a horizon later. If the readings span less, neighbours
    are compared, and the result is raised to the power of the horizon over their distance.
    """
    if len(readings) < 2:
        return 1.0
    shares = np.array([_shares(links, loads) for _, loads in readings])
    deviations = shares - shares.mean()
    variance = float((deviations**2).mean())
    if not variance > 0:
        return 1.0
    times_s = np.array([at for at, _ in readings])
    later = np.searchsorted(times_s, times_s + horizon_s * (1 - 1e-9))
    earlier = np.flatnonzero(later < len(times_s))
    if len(earlier):
        exponent = 1.0
    else:
        earlier, later = np.arange(len(times_s) - 1), np.arange(1, len(times_s) + 1)
        exponent = horizon_s / float(np.diff(times_s).mean())
    products = deviations[earlier] * deviations[later[earlier]]
    return float(np.clip(products.mean() / variance, 0.0, 1.0) ** exponent)


def _shares(links: Links, loads: Mapping[Endpoint, LinkLoad]) -> Floats:
    """(links between switches,): load as a share of the rate, at most 1."""
    bps = np.zeros(len(links.rate_bps))
    at = np.array([links.number[link] for link in loads], np.int64)
    bps[at] = [load.background_bps for load in loads.values()]
    between = links.pair_of >= 0
    shares: Floats = np.minimum(bps[between] / links.rate_bps[between], 1.0)
    return shares
