"""Traffic that obeys no window of ours, as an operator declares it: what of it can meet in each queue.

Uncontrolled (host to host, a leaky bucket) ─ every path that hashing may choose ─▶ Crossing of each directed link
Windowed (host to host and back) ──────────── every path, both ways ─────────────▶ packets of each directed link
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...topologies.model import Endpoint
from ...topologies.routing import Routes


@dataclass(frozen=True, slots=True)
class Uncontrolled:
    """Datagrams from one host to another that come at a mean rate and neither read marks nor yield."""

    source: str
    destination: str
    rate_bps: float
    packet_bytes: int
    """Of a frame."""
    burst_packets: int = 1
    """The most that come at once."""

    @property
    def packets_per_second(self) -> float:
        return self.rate_bps / (8 * self.packet_bytes)


@dataclass(frozen=True, slots=True)
class Windowed:
    """Packets from one host to another that are all acknowledged, and of which no more are under way than the receiver
    lets be, whatever the network says: a TCP connection, by its receive window.
    """

    source: str
    destination: str
    packets: int
    """In the network at most, those that go and the acknowledgements that come back together."""
    packet_bytes: int
    """Of the largest frame."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """One declared stream on one link."""

    stream: Uncontrolled
    upstream: tuple[tuple[Endpoint, ...], ...]
    """The switches' links that it has crossed before, whose queues make it more bursty: for each hop, those that
    hashing may choose.
    """


def cross_traffic(routes: Routes, declared: Iterable[Uncontrolled]) -> Mapping[Endpoint, tuple[Crossing, ...]]:
    """What may cross each switch's egress port. Raises TopologyError for hosts that the fabric does not have."""
    found: dict[Endpoint, list[Crossing]] = {}
    topology = routes.topology
    for stream in declared:
        if not routes.reaches(stream.source, stream.destination):
            continue
        links = [link for link in routes.shares(stream.source, stream.destination) if topology.is_switch(link.node)]
        for link in links:
            left = routes.hops(link.node, stream.destination)
            most = max(routes.hops(e.node, stream.destination) for e in links)
            upstream = tuple(
                tuple(e for e in links if routes.hops(e.node, stream.destination) == hop)
                for hop in range(most, left, -1)
            )
            found.setdefault(link, []).append(Crossing(stream, upstream))
    return {link: tuple(crossings) for link, crossings in found.items()}


def windows_on(routes: Routes, declared: Iterable[Windowed]) -> Mapping[Endpoint, tuple[Windowed, ...]]:
    """Whose packets, or acknowledgements, may cross each switch's egress port. Raises TopologyError for hosts that the
    fabric does not have.
    """
    found: dict[Endpoint, list[Windowed]] = {}
    for each in declared:
        ways = ((each.source, each.destination), (each.destination, each.source))
        links = {link for way in ways if routes.reaches(*way) for link in routes.shares(*way)}
        for link in links:
            if routes.topology.is_switch(link.node):
                found.setdefault(link, []).append(each)
    return {link: tuple(there) for link, there in found.items()}
