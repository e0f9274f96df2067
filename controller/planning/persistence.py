"""Persistence of links' loads: the share of the present picture that is still there one horizon later.

It is the autocorrelation of the loads of all links between switches, with the mean over links and readings subtracted:
1 while every link keeps its load, about 0 if a link's next load is as any link's. A link that is always busier than
others counts as persistent. Pure, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from ...topologies.model import Endpoint
from ..placement.model.links import Floats, Links
from ..placement.model.loads import LinkLoad


class LoadHistory:
    """The last readings of all links, as far as their persistence needs them."""

    def __init__(self, kept: int) -> None:
        """Create an empty history of at most `kept` readings."""
        self._readings: deque[tuple[float, Floats]] = deque(maxlen=kept)
        """Time in seconds, and load of each link between switches as a share of its rate; oldest first."""
        self._links: Links | None = None
        self._known: dict[float, float] = {}
        """Results by horizon, since the last reading."""

    def add(self, links: Links, at_s: float, loads: Mapping[Endpoint, LinkLoad]) -> None:
        """Add a reading. One of the same time is replaced; readings of other links are dropped.

        Args:
            links: Links of the fabric.
            at_s: Time in seconds, not before that of the last reading.
            loads: Measured loads; a missing link is idle.
        """
        if links is not self._links:
            self._links = links
            self._readings.clear()
        if self._readings and self._readings[-1][0] == at_s:
            self._readings.pop()
        self._readings.append((at_s, _shares(links, loads)))
        self._known.clear()

    def persistence(self, horizon_s: float) -> float:
        """Return the autocorrelation of loads after `horizon_s`, 0…1; 1 without two readings, links or any difference.

        Each reading is compared with the first one that is at least a horizon later. If the readings span less,
        neighbours are compared, and the result is raised to the power of the horizon over their distance.
        """
        if horizon_s not in self._known:
            self._known[horizon_s] = self._persistence(horizon_s)
        return self._known[horizon_s]

    def _persistence(self, horizon_s: float) -> float:
        if len(self._readings) < 2:
            return 1.0
        shares = np.array([shares for _, shares in self._readings])
        if not shares.size:
            return 1.0
        deviations = shares - shares.mean()
        variance = float((deviations**2).mean())
        if not variance > 0:
            return 1.0
        times_s = np.array([at for at, _ in self._readings])
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
