"""Delay bound of the control class: the maximum delay of heartbeats, whatever the bulk class does. Pure arithmetic.

Strict priority: at each hop a packet of the class waits for the frame of another class being sent, and for earlier
packets of its own class, (σ + Lmax)/C; the burst grows by ρ·D at the next hop.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from .formulas import burst_behind, priority_delay_ns


def control_delay_ns(
    routes: Routes, senders: Iterable[str], destination: str, *, frame_bytes: int, period_ns: int, largest_bytes: int
) -> int:
    """The longest that a frame of the class takes to a host, from any of the senders, each of which sends one frame in
    a period. `largest_bytes`: of a frame of another class on any link.
    """
    topology, longest = routes.topology, 0
    senders = [sender for sender in senders if sender != destination]
    for sender in senders:
        ways = routes.shares(sender, destination)
        stages: dict[int, list[Endpoint]] = {}
        for link in ways:
            stages.setdefault(routes.hops(link.node, destination), []).append(link)
        total, burst, together = 0, float(frame_bytes), 1
        for _, links in sorted(stages.items(), reverse=True):
            if topology.is_switch(links[0].node) and together == 1:  # which ways meet where, hashing says: all may
                burst, together = burst * len(senders), len(senders)
            slowest = min(topology.link_at(link).rate_bps for link in links)
            hop_ns = priority_delay_ns(int(burst), largest_bytes, slowest)
            total += hop_ns + max(topology.link_at(link).delay_ns for link in links)
            burst = burst_behind(burst, together * frame_bytes * 1e9 / period_ns, hop_ns / 1e9)
        longest = max(longest, total)
    return longest
