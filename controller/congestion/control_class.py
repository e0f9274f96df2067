"""Delay bound of the control class: the maximum delay of heartbeats, whatever the bulk class does. Pure arithmetic.

Strict priority: at each hop a packet of the class waits for the frame of another class being sent, and for earlier
packets of its own class, (σ + Lmax)/C; the burst grows by ρ·D at the next hop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from .network_calculus import RateLatency, TokenBucket, delay_bound, output_curve


def control_delay_ns(
    routes: Routes, senders: Iterable[str], destination: str, *, frame_bytes: int, period_ns: int, largest_bytes: int
) -> int:
    """Return the maximum time of a frame of the control class to a host, in ns.

    Args:
        routes: IP routes of the fabric.
        senders: Hosts that send one such frame in each period.
        destination: Host that receives them.
        frame_bytes: Bytes of such a frame.
        period_ns: Period of each sender, in ns.
        largest_bytes: Maximum bytes of a frame of another class, on any link.
    """
    topology, longest = routes.topology, 0
    senders = [sender for sender in senders if sender != destination]
    for sender in senders:
        ways = routes.shares(sender, destination)
        stages: dict[int, list[Endpoint]] = {}
        for link in ways:
            stages.setdefault(routes.hops(link.node, destination), []).append(link)
        total, traffic, together = 0, TokenBucket(frame_bytes, frame_bytes * 1e9 / period_ns), 1
        for _, links in sorted(stages.items(), reverse=True):
            if topology.is_switch(links[0].node) and together == 1:  # which ways meet where, hashing says: all may
                traffic, together = traffic.per(1 / len(senders)), len(senders)
            slowest = min(topology.link_at(link).rate_bps for link in links)
            hop_ns = priority_delay_ns(int(traffic.burst), largest_bytes, slowest)
            total += hop_ns + max(topology.link_at(link).delay_ns for link in links)
            traffic = output_curve(traffic, hop_ns / 1e9)
        longest = max(longest, total)
    return longest


def priority_delay_s(burst_bytes: float, largest_bytes: int, rate_bps: float) -> float:
    """Return the maximum delay at one hop of a class in strict priority that keeps to its token bucket: (σ +
    Lmax)/C.
    """
    return delay_bound(TokenBucket(burst_bytes), RateLatency(rate_bps / 8, 8 * largest_bytes / rate_bps))


def priority_delay_ns(burst_bytes: int, largest_bytes: int, rate_bps: float) -> int:
    """Return the same, in whole nanoseconds."""
    return math.ceil(round(1e9 * priority_delay_s(burst_bytes, largest_bytes, rate_bps), 3))
