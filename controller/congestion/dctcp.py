"""DCTCP's queue by Alizadeh et al., "Analysis of DCTCP", SIGMETRICS 2011.

All flows are in step and grow by a packet per step. Packets have one size.

- C: rate of the link in packets per second
- T: round trip in empty queues
- B = C·T: bandwidth-delay product in packets
- N: number of flows
- K: packets in the queue from which on packets are marked
"""

from __future__ import annotations

import math


def dctcp_largest_queue(threshold: float, flows: int) -> float:
    """Return K + N, the largest queue in packets: every flow adds its packet before the mark of the K-th comes back."""
    return threshold + flows


def dctcp_amplitude(product: float, threshold: float, flows: int) -> float:
    """Return ½·√(2N(B + K)): the packets by which the queue falls after its top."""
    return math.sqrt(2 * flows * (product + threshold)) / 2


def dctcp_least_queue(product: float, threshold: float, flows: int) -> float:
    """Return the smallest queue in packets; below 0 the link falls idle."""
    return dctcp_largest_queue(threshold, flows) - dctcp_amplitude(product, threshold, flows)


def dctcp_least_threshold(product: float) -> float:
    """Return B/7 in packets: with a threshold above it the link is never idle, however many flows there are."""
    return product / 7


def dctcp_thresholds(bound: int, product: float, flows: int) -> range:
    """Return thresholds K that keep N flows at or below the bound and the link busy: B/7 < K ≤ Q* − N; empty if
    there are none.
    """
    return range(math.floor(dctcp_least_threshold(product)) + 1, bound - flows + 1)
