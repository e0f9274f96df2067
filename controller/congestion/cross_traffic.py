"""Traffic outside Weir's windows, as an operator declares it, and the part of it that can meet in each queue.

Uncontrolled (host to host, a leaky bucket) ─ its path, or all that hashing may choose ─▶ CrossTraffic of directed links
             all traffic of one host ────────── waits in one queue before it ─────────▶ Nic
Windowed (host to host and back) ────────────── every path, both directions ──────────▶ packets of each directed link
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ..errors import PlanError
from ..planning.forwarding import flow_way
from ..planning.plan import round_bytes

_TURNS: Final = 64
"""Maximum number of iterations until bursts of the control class, each delayed by those of the iteration before,
converge.
"""
_LISTED: Final = 3
"""Entries of declared traffic that a message names."""

Hops = tuple[tuple[Endpoint, ...], ...]
"""Links of a way, from the first on: for each hop, those that hashing may choose."""


@dataclass(frozen=True, slots=True)
class Uncontrolled:
    """Datagrams from one host to another that come at a mean rate and neither read marks nor yield."""

    source: str
    destination: str
    rate_bps: float
    packet_bytes: int
    """Length of each frame."""
    burst_packets: int = 1
    """The most that come at once."""
    ports: tuple[int, int] | None = None
    """UDP ports of source and destination, by which switches choose among equal-cost paths; None: any, so that they may
    take each path.
    """
    start_ns: int = 0
    stop_ns: int | None = None
    """Nothing is sent before the one and from the other on; None: it never ends. Of one pair of hosts only what runs at
    one time adds up.
    """
    in_control_class: bool = False
    """True if its packets precede all bulk packets, and wait for at most the frame being sent."""

    def __post_init__(self) -> None:
        if self.stop_ns is not None and self.stop_ns <= self.start_ns:
            raise PlanError(
                f"congestion: traffic from {self.source} to {self.destination} ends at {self.stop_ns} ns, "
                f"and begins at {self.start_ns} ns"
            )

    @property
    def packets_per_second(self) -> float:
        return self.rate_bps / (8 * self.packet_bytes)

    def runs_at(self, time_ns: int) -> bool:
        return self.start_ns <= time_ns and (self.stop_ns is None or time_ns < self.stop_ns)


@dataclass(frozen=True, slots=True)
class Windowed:
    """Packets from one host to another that are all acknowledged, and of which no more are under way than the receiver
    lets be, whatever the network says: a TCP connection, by its receive window.
    """

    source: str
    destination: str
    packets: int
    """Maximum number of packets in the network, data and acknowledgements together."""
    packet_bytes: int
    """Length of the largest frame."""


@dataclass(frozen=True, slots=True)
class PairTraffic:
    """Declared streams of one pair of hosts at one link: together a leaky bucket, in packets."""

    packets_per_second: float
    """ρ: of those that run at one time."""
    rate_bps: float
    """The same in bits."""
    burst_packets: float
    """σ, as if they met no queue before."""
    every_burst_counts: bool
    """True if σ is the sum over all streams, including those that do not run at one time."""
    behind: Mapping[Hops, float]
    """Packets per second of simultaneous streams, by the links that they have crossed before."""

    @classmethod
    def of(cls, streams: Sequence[tuple[Uncontrolled, Hops]]) -> PairTraffic:
        """Combine `streams`, each with the links that it has crossed before.

        In any time t the streams that run throughout bring Σσ + t·Σρ. A stream that begins and ends within t brings
        ρ·t' + σ in its own time t', thus (ρ + σ/t')·t'. Streams that run at the beginning or at the end of t bring
        their σ in addition: twice the σ of simultaneous streams. Alternatively the σ of all streams count, if that is
        less.
        """
        alone = [stream for stream, _ in streams]
        every = sum(one.burst_packets for one in alone)
        twice = 2 * _at_once(alone, lambda one: one.burst_packets)
        ways: dict[Hops, list[Uncontrolled]] = {}
        for stream, upstream in streams:
            ways.setdefault(upstream, []).append(stream)
        rate_of = _packets_per_second if every <= twice else _packets_per_second_and_burst
        return cls(
            _at_once(alone, rate_of),
            _at_once(alone, lambda one: one.rate_bps),
            min(every, twice),
            every <= twice,
            {upstream: _at_once(those, rate_of) for upstream, those in ways.items()},
        )

    def burst_behind(self, delay_s: Callable[[Hops], float]) -> float:
        """σ + ρ·D: maximum burst where a path's queues delay by at most `delay_s`.

        Packets that arrive in a time t were sent in t and the D before, so the largest delay covers all. If σ is that
        of all streams, each path may have its own delay.
        """
        delays_s = {upstream: delay_s(upstream) for upstream in self.behind}
        late = self.packets_per_second * max(delays_s.values())
        if self.every_burst_counts:
            late = min(late, sum(rate * delays_s[upstream] for upstream, rate in self.behind.items()))
        return self.burst_packets + late


@dataclass(frozen=True, slots=True)
class ControlTraffic:
    """Control-class traffic of one link, before all other traffic: a leaky bucket, of bytes."""

    rate_bps: float = 0.0
    burst_bytes: float = 0.0

    def left(self, link_bps: int) -> float:
        """1 − h: the part that it leaves of a link of this rate, and a hundredth where it leaves nothing."""
        return max(0.01, 1 - self.rate_bps / link_bps)

    def packets(self, frame_bytes: int, link_bps: int) -> float:
        """σ_h: number of frames of this length that the class delays at once, and while a frame is sent for which it
        waits.

        Infinite if the class uses up a link of this rate.
        """
        if self.rate_bps >= link_bps:
            return math.inf
        return self.burst_bytes / frame_bytes + self.rate_bps / link_bps if self.rate_bps else 0.0


NO_CONTROL: Final = ControlTraffic()


@dataclass(frozen=True, slots=True)
class Nic:
    """Declared traffic of a host, which waits in one queue at its NIC, together a leaky bucket.

    The host's packets of jobs and of other windows wait in the same queue.
    """

    port: Endpoint
    """The switch's that leads to the host."""
    packets_per_second: float
    burst_packets: float
    largest_bytes: int
    """Length of its longest frame."""
    destinations: int
    """Number of destinations. Traffic to a single one leaves a NIC no more bursty than it was sent."""
    control: ControlTraffic
    """The host's traffic that precedes it."""

    @classmethod
    def of(cls, port: Endpoint, streams: Sequence[Uncontrolled], control: ControlTraffic) -> Nic:
        """`streams` are all of one host, which knows when it sends what."""
        together = PairTraffic.of([(stream, ()) for stream in streams])
        return cls(
            port,
            together.packets_per_second,
            together.burst_packets,
            max(stream.packet_bytes for stream in streams),
            len({stream.destination for stream in streams}),
            control,
        )


@dataclass(frozen=True, slots=True)
class CrossTraffic:
    """Declared streams of one link."""

    pairs: tuple[PairTraffic, ...]
    """Traffic by pair of hosts. Traffic of one pair at different times does not add up, as its source knows its own
    times; no host knows when others send.
    """
    upstream: tuple[Endpoint, ...]
    """The switches' links that any of it has crossed before, each once."""
    inlets: frozenset[Endpoint]
    """The links by which it comes to this one's switch."""
    smallest_bytes: int
    """Length of its shortest frame."""
    largest_bytes: int
    """Length of its longest frame."""
    nics: Mapping[Endpoint, Nic] = field(default_factory=dict)
    """NIC of each host whose traffic is part of it, by the host's link."""
    control: ControlTraffic = NO_CONTROL
    """Control-class traffic that precedes it."""

    @property
    def packets_per_second(self) -> float:
        return sum(pair.packets_per_second for pair in self.pairs)

    @property
    def rate_bps(self) -> float:
        return sum(pair.rate_bps for pair in self.pairs)

    def share(self, frame_bytes: int, link_bps: int) -> float:
        """Share of the rate that the control class leaves, if all frames had this length."""
        return self.packets_per_second * (8 * frame_bytes / (link_bps * self.control.left(link_bps)))

    def burst_behind(self, delay_s: Callable[[Hops], float]) -> float:
        """Packets that come at once where a way's queues delay by `delay_s` at most."""
        return sum(pair.burst_behind(delay_s) for pair in self.pairs)


def with_undeclared(
    crossing: CrossTraffic | None, rate_bps: float, frame_bytes: int, inlets: Iterable[Endpoint]
) -> CrossTraffic:
    """Return a link's cross traffic plus undeclared traffic detected there, whose bursts are unknown and assumed
    minimal.
    """
    packets_per_second = rate_bps / (8 * frame_bytes)
    seen = PairTraffic(packets_per_second, rate_bps, 1.0, every_burst_counts=True, behind={(): packets_per_second})
    if crossing is None:
        return CrossTraffic((seen,), (), frozenset(inlets), frame_bytes, frame_bytes)
    return replace(crossing, pairs=(*crossing.pairs, seen), inlets=crossing.inlets | frozenset(inlets))


def _packets_per_second(stream: Uncontrolled) -> float:
    return stream.packets_per_second


def _packets_per_second_and_burst(stream: Uncontrolled) -> float:
    """Rate of a stream with its burst spread over the time that it runs."""
    if stream.stop_ns is None:
        return stream.packets_per_second
    return stream.packets_per_second + 1e9 * stream.burst_packets / max(1, stream.stop_ns - stream.start_ns)


def _at_once(streams: Sequence[Uncontrolled], of: Callable[[Uncontrolled], float]) -> float:
    """The most that `of` adds up to over streams that run at one time."""
    return max(sum(of(one) for one in streams if one.runs_at(at)) for at in {one.start_ns for one in streams})


def hop_by_hop(routes: Routes, links: Iterable[Endpoint], destination: str) -> Hops:
    """The links of a way to a destination, the first hop's first."""
    hops: dict[int, list[Endpoint]] = {}
    for link in links:
        hops.setdefault(routes.hops(link.node, destination), []).append(link)
    return tuple(tuple(hops[left]) for left in sorted(hops, reverse=True))


def cross_traffic(routes: Routes, declared: Iterable[Uncontrolled]) -> Mapping[Endpoint, CrossTraffic]:
    """Return the cross traffic of each switch's egress port. Raises TopologyError for hosts that the fabric does not
    have.
    """
    declared = tuple(declared)
    control = _control_traffic(routes, declared)
    found: dict[Endpoint, list[_Crossing]] = {}
    topology = routes.topology
    sent: dict[str, list[Uncontrolled]] = {}
    for stream in (one for one in declared if not one.in_control_class):
        sent.setdefault(stream.source, []).append(stream)
    nics: dict[Endpoint, Nic] = {}
    for stream in itertools.chain.from_iterable(sent.values()):
        source, destination = stream.source, stream.destination
        if not routes.reaches(source, destination):
            continue
        first, *onward = _hops(routes, stream)
        [own] = first
        if own not in nics:
            nics[own] = Nic.of(topology.peer(own), sent[source], control.get(own, NO_CONTROL))
        upstream, before = Hops([first]), first
        for links in onward:
            for link in links:
                inlets = [end for end in before if topology.peer(end).node == link.node]
                found.setdefault(link, []).append(_Crossing(stream, upstream, inlets))
            upstream, before = (*upstream, links), links
    return {
        link: replace(_together(crossings, nics), control=control.get(link, NO_CONTROL))
        for link, crossings in found.items()
    }


def _hops(routes: Routes, stream: Uncontrolled) -> Hops:
    """Links of a stream's path, its host's link first."""
    source, destination = stream.source, stream.destination
    if stream.ports is None:
        way = routes.shares(source, destination)
    else:
        way = flow_way(routes, source, destination, stream.ports)
    return hop_by_hop(routes, way, destination)


def _control_traffic(routes: Routes, declared: Sequence[Uncontrolled]) -> Mapping[Endpoint, ControlTraffic]:
    """Return the control-class traffic of each link.

    At each hop it waits for a frame of another class and for a burst of its own, (σ + Lmax)/C
    (controller/congestion/control_class.py), which adds to its burst at the next one.
    """
    ways = [
        (stream, _hops(routes, stream))
        for stream in declared
        if stream.in_control_class and routes.reaches(stream.source, stream.destination)
    ]
    topology, found = routes.topology, dict[Endpoint, ControlTraffic]()
    largest_bytes = max([round_bytes(topology), *(stream.packet_bytes for stream in declared)])
    for _ in range(_TURNS):
        before, found = found, {}
        for stream, hops in ways:
            late_s = 0.0
            for links in hops:
                burst_bytes = stream.burst_packets * stream.packet_bytes + late_s * stream.rate_bps / 8
                for link in links:
                    there = found.get(link, NO_CONTROL)
                    found[link] = ControlTraffic(there.rate_bps + stream.rate_bps, there.burst_bytes + burst_bytes)
                late_s += max(
                    8 * (before.get(link, NO_CONTROL).burst_bytes + largest_bytes) / topology.link_at(link).rate_bps
                    for link in links
                )
        if found == before:
            return found
    return {link: replace(there, burst_bytes=math.inf) for link, there in found.items()}


@dataclass(frozen=True, slots=True)
class _Crossing:
    """One declared stream on one link."""

    stream: Uncontrolled
    upstream: Hops
    """The links that it has crossed before, whose queues make it more bursty."""
    inlets: Sequence[Endpoint]
    """The links by which it comes to this one's switch."""


def _together(crossings: Sequence[_Crossing], nics: Mapping[Endpoint, Nic]) -> CrossTraffic:
    pairs: dict[tuple[str, str], list[tuple[Uncontrolled, Hops]]] = {}
    for one in crossings:
        pairs.setdefault((one.stream.source, one.stream.destination), []).append((one.stream, one.upstream))
    before = dict.fromkeys(link for one in crossings for hop in one.upstream for link in hop)
    return CrossTraffic(
        tuple(PairTraffic.of(streams) for streams in pairs.values()),
        tuple(link for link in before if link not in nics),
        frozenset(link for one in crossings for link in one.inlets),
        min(one.stream.packet_bytes for one in crossings),
        max(one.stream.packet_bytes for one in crossings),
        {link: nics[link] for link in before if link in nics},
    )


def windows_on(routes: Routes, declared: Iterable[Windowed]) -> Mapping[Endpoint, tuple[Windowed, ...]]:
    """Return the windowed traffic, data or acknowledgements, of each switch's egress port.

    Raises:
        TopologyError: The fabric does not have a host.
    """
    found: dict[Endpoint, list[Windowed]] = {}
    for each in declared:
        ways = ((each.source, each.destination), (each.destination, each.source))
        links = {link for way in ways if routes.reaches(*way) for link in routes.shares(*way)}
        for link in links:
            if routes.topology.is_switch(link.node):
                found.setdefault(link, []).append(each)
    return {link: tuple(there) for link, there in found.items()}


@dataclass(frozen=True, slots=True)
class DeclaredPair:
    """One entry of declared traffic, in words, and the switches' links that it may cross."""

    text: str
    """Hosts, and what was declared."""
    links: frozenset[Endpoint]


def declared_pairs(
    routes: Routes, uncontrolled: Iterable[Uncontrolled], windowed: Iterable[Windowed]
) -> Mapping[Endpoint, tuple[DeclaredPair, ...]]:
    """Return the declared traffic of each switch's egress port, by pair of hosts."""
    pairs: list[DeclaredPair] = []
    for stream in uncontrolled:
        if not stream.in_control_class and routes.reaches(stream.source, stream.destination):
            links = itertools.chain.from_iterable(_hops(routes, stream))
            text = f"{stream.source} to {stream.destination}: {stream.rate_bps / 1e6:g} Mbit/s, {stream.burst_packets} "
            text += "packet at once" if stream.burst_packets == 1 else "packets at once"
            pairs.append(DeclaredPair(text, frozenset(link for link in links if routes.topology.is_switch(link.node))))
    for each in windowed:
        links_of = windows_on(routes, [each])
        pairs.append(DeclaredPair(f"{each.source} to {each.destination}: window {each.packets}", frozenset(links_of)))
    found: dict[Endpoint, list[DeclaredPair]] = {}
    for pair in pairs:
        for link in pair.links:
            found.setdefault(link, []).append(pair)
    return {link: tuple(there) for link, there in found.items()}


def listed(pairs: Sequence[DeclaredPair]) -> str:
    """Up to three entries in words, and the number of the others."""
    more = f"; and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return "; ".join(pair.text for pair in pairs[:_LISTED]) + more
