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
from ..telemetry.probes import Probe
from .control_class import priority_delay_s
from .network_calculus import NO_TRAFFIC, TokenBucket, aggregate, output_curve

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
    """A host, or a switch that reports to one."""
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
    def curve(self) -> TokenBucket:
        """Its arrival curve at the source, in packets."""
        return TokenBucket(self.burst_packets, self.rate_bps / (8 * self.packet_bytes))

    def runs_at(self, time_ns: int) -> bool:
        """True if the traffic is declared for a time in ns since the fabric's start."""
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
    """Declared streams of one pair of hosts at one link."""

    curve: TokenBucket
    """Arrival curve in packets, as if they met no queue before: ρ of those that run at one time, and σ."""
    rate_bps: float
    """ρ in bits."""
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
        every = float(sum(one.burst_packets for one in alone))
        twice = 2 * _at_once(alone, lambda one: one.burst_packets)
        ways: dict[Hops, list[Uncontrolled]] = {}
        for stream, upstream in streams:
            ways.setdefault(upstream, []).append(stream)
        rate_of = _packets_per_second if every <= twice else _packets_per_second_and_burst
        return cls(
            TokenBucket(min(every, twice), _at_once(alone, rate_of)),
            _at_once(alone, lambda one: one.rate_bps),
            every <= twice,
            {upstream: _at_once(those, rate_of) for upstream, those in ways.items()},
        )

    def curve_behind(self, delay_s: Callable[[Hops], float]) -> TokenBucket:
        """Return the arrival curve where a path's queues delay by at most `delay_s`.

        Packets that arrive in a time t were sent in t and the D before, so the largest delay covers all. If σ is that
        of all streams, each path may have its own delay.
        """
        delays_s = {upstream: delay_s(upstream) for upstream in self.behind}
        late = output_curve(self.curve, max(delays_s.values()))
        if not self.every_burst_counts:
            return late
        apart = sum(rate * delays_s[upstream] for upstream, rate in self.behind.items())
        return replace(late, burst=min(late.burst, self.curve.burst + apart))


@dataclass(frozen=True, slots=True)
class Nic:
    """Declared traffic of a host, which waits in one queue at its NIC.

    The host's packets of jobs and of other windows wait in the same queue.
    """

    port: Endpoint
    """The switch's that leads to the host."""
    curve: TokenBucket
    """Its arrival curve, in packets."""
    largest_bytes: int
    """Length of its longest frame."""
    destinations: int
    """Number of destinations. Traffic to a single one leaves a NIC no more bursty than it was sent."""
    control: TokenBucket
    """Arrival curve in bytes of the host's traffic that precedes it."""

    @classmethod
    def of(cls, port: Endpoint, streams: Sequence[Uncontrolled], control: TokenBucket) -> Nic:
        """Return the NIC of one host that sends `streams`, which knows when it sends what."""
        together = PairTraffic.of([(stream, ()) for stream in streams])
        return cls(
            port,
            together.curve,
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
    from_within: bool
    """True if some of it begins at this one's switch."""
    smallest_bytes: int
    """Length of its shortest frame."""
    largest_bytes: int
    """Length of its longest frame."""
    nics: Mapping[Endpoint, Nic] = field(default_factory=dict)
    """NIC of each host whose traffic is part of it, by the host's link."""
    control: TokenBucket = NO_TRAFFIC
    """Arrival curve of the control class, which precedes it, in bytes."""

    @property
    def curve(self) -> TokenBucket:
        """Arrival curve in packets, as if it met no queue before."""
        return aggregate(pair.curve for pair in self.pairs)

    @property
    def rate_bps(self) -> float:
        """Sum of the pairs' mean rates in bit/s."""
        return sum(pair.rate_bps for pair in self.pairs)

    def curve_behind(self, delay_s: Callable[[Hops], float]) -> TokenBucket:
        """Return the arrival curve in packets where a way's queues delay by `delay_s` at most."""
        return aggregate(pair.curve_behind(delay_s) for pair in self.pairs)


def with_undeclared(
    crossing: CrossTraffic | None, rate_bps: float, frame_bytes: int, inlets: Iterable[Endpoint]
) -> CrossTraffic:
    """Return a link's cross traffic plus undeclared traffic that telemetry detected there.

    The bursts of undeclared traffic are unknown and assumed minimal.

    Args:
        crossing: Declared cross traffic; None: there is none.
        rate_bps: Rate of the undeclared traffic, in bit/s.
        frame_bytes: Length of its frames.
        inlets: Links by which it may enter the switch that sends on this link.
    """
    packets_per_second = rate_bps / (8 * frame_bytes)
    curve = TokenBucket(1.0, packets_per_second)
    seen = PairTraffic(curve, rate_bps, every_burst_counts=True, behind={(): packets_per_second})
    if crossing is None:
        return CrossTraffic((seen,), (), frozenset(inlets), False, frame_bytes, frame_bytes)
    return replace(crossing, pairs=(*crossing.pairs, seen), inlets=crossing.inlets | frozenset(inlets))


def _packets_per_second(stream: Uncontrolled) -> float:
    return stream.curve.rate


def _packets_per_second_and_burst(stream: Uncontrolled) -> float:
    """Rate of a stream with its burst spread over the time that it runs."""
    if stream.stop_ns is None:
        return stream.curve.rate
    return stream.curve.rate + 1e9 * stream.burst_packets / max(1, stream.stop_ns - stream.start_ns)


def _at_once(streams: Sequence[Uncontrolled], of: Callable[[Uncontrolled], float]) -> float:
    """The most that `of` adds up to over streams that run at one time."""
    return max(
        sum(of(stream) for stream in streams if stream.runs_at(at)) for at in {stream.start_ns for stream in streams}
    )


def hop_by_hop(routes: Routes, links: Iterable[Endpoint], destination: str) -> Hops:
    """Return the links of a way to a destination, the first hop's first."""
    hops: dict[int, list[Endpoint]] = {}
    for link in links:
        hops.setdefault(routes.hops(link.node, destination), []).append(link)
    return tuple(tuple(hops[left]) for left in sorted(hops, reverse=True))


def probe_way(routes: Routes, probe: Probe) -> Hops:
    """Return the links that a probe may cross, the first hop's first."""
    first = Endpoint(probe.switch, probe.port)
    far = routes.topology.peer(first).node
    if far == probe.destination or not routes.reaches(far, probe.destination):
        return ((first,),)
    return ((first,), *hop_by_hop(routes, routes.shares(far, probe.destination), probe.destination))


def cross_traffic(routes: Routes, declared: Iterable[Uncontrolled]) -> Mapping[Endpoint, CrossTraffic]:
    """Return the cross traffic of each switch's egress port. Raises TopologyError for hosts that the fabric does not
    have.
    """
    declared = tuple(declared)
    control = _control_traffic(routes, declared)
    found: dict[Endpoint, list[_Crossing]] = {}
    topology = routes.topology
    sent: dict[str, list[Uncontrolled]] = {}
    for stream in (other for other in declared if not other.in_control_class):
        sent.setdefault(stream.source, []).append(stream)
    nics: dict[Endpoint, Nic] = {}
    for stream in itertools.chain.from_iterable(sent.values()):
        source, destination = stream.source, stream.destination
        if not routes.reaches(source, destination):
            continue
        onward: Sequence[tuple[Endpoint, ...]] = _hops(routes, stream)
        upstream, before = Hops(), tuple[Endpoint, ...]()
        if topology.is_host(source):
            [own], *onward = onward
            if own not in nics:
                nics[own] = Nic.of(topology.peer(own), sent[source], control.get(own, NO_TRAFFIC))
            upstream, before = Hops([(own,)]), (own,)
        for links in onward:
            for link in links:
                inlets = [end for end in before if topology.peer(end).node == link.node]
                found.setdefault(link, []).append(_Crossing(stream, upstream, inlets))
            upstream, before = (*upstream, links), links
    return {
        link: replace(_together(crossings, nics), control=control.get(link, NO_TRAFFIC))
        for link, crossings in found.items()
    }


def _hops(routes: Routes, stream: Uncontrolled) -> Hops:
    """Links of a stream's path, its source's first."""
    source, destination = stream.source, stream.destination
    if stream.ports is None:
        way = routes.shares(source, destination)
    else:
        way = flow_way(routes, source, destination, stream.ports)
    return hop_by_hop(routes, way, destination)


def _control_traffic(routes: Routes, declared: Sequence[Uncontrolled]) -> Mapping[Endpoint, TokenBucket]:
    """Return the arrival curve of each link's control-class traffic, in bytes.

    At each hop it waits for a frame of another class and for a burst of its own, which adds to its burst at the next
    one.
    """
    ways = [
        (stream, _hops(routes, stream))
        for stream in declared
        if stream.in_control_class and routes.reaches(stream.source, stream.destination)
    ]
    topology, buckets = routes.topology, dict[Endpoint, TokenBucket]()
    largest_bytes = max([round_bytes(topology), *(stream.packet_bytes for stream in declared)])
    for _ in range(_TURNS):
        before, buckets = buckets, {}
        for stream, hops in ways:
            late_s = 0.0
            for links in hops:
                curve = output_curve(stream.curve.per(1 / stream.packet_bytes), late_s)
                for link in links:
                    buckets[link] = buckets.get(link, NO_TRAFFIC) + curve
                # an overload is noticed by its burst, which never settles
                late_s += max(
                    priority_delay_s(before.get(link, NO_TRAFFIC).burst, largest_bytes, topology.link_at(link).rate_bps)
                    for link in links
                )
        if buckets == before:
            return buckets
    return {link: replace(there, burst=math.inf) for link, there in buckets.items()}


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
    for crossing in crossings:
        pairs.setdefault((crossing.stream.source, crossing.stream.destination), []).append(
            (crossing.stream, crossing.upstream)
        )
    before = dict.fromkeys(link for crossing in crossings for hop in crossing.upstream for link in hop)
    return CrossTraffic(
        tuple(PairTraffic.of(streams) for streams in pairs.values()),
        tuple(link for link in before if link not in nics),
        frozenset(link for crossing in crossings for link in crossing.inlets),
        any(not crossing.upstream for crossing in crossings),
        min(crossing.stream.packet_bytes for crossing in crossings),
        max(crossing.stream.packet_bytes for crossing in crossings),
        {link: nics[link] for link in before if link in nics},
    )


def windows_on(routes: Routes, declared: Iterable[Windowed]) -> Mapping[Endpoint, tuple[Windowed, ...]]:
    """Return the windowed traffic, data or acknowledgements, of each switch's egress port.

    Raises:
        TopologyError: The fabric does not have a host.
    """
    windows: dict[Endpoint, list[Windowed]] = {}
    for traffic in declared:
        ways = ((traffic.source, traffic.destination), (traffic.destination, traffic.source))
        links = {link for way in ways if routes.reaches(*way) for link in routes.shares(*way)}
        for link in links:
            if routes.topology.is_switch(link.node):
                windows.setdefault(link, []).append(traffic)
    return {link: tuple(there) for link, there in windows.items()}


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
    for traffic in windowed:
        links_of = windows_on(routes, [traffic])
        pairs.append(
            DeclaredPair(f"{traffic.source} to {traffic.destination}: window {traffic.packets}", frozenset(links_of))
        )
    pairs_by_link: dict[Endpoint, list[DeclaredPair]] = {}
    for pair in pairs:
        for link in pair.links:
            pairs_by_link.setdefault(link, []).append(pair)
    return {link: tuple(there) for link, there in pairs_by_link.items()}


def listed(pairs: Sequence[DeclaredPair]) -> str:
    """Return up to three entries in words, and the number of the others."""
    more = f"; and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return "; ".join(pair.text for pair in pairs[:_LISTED]) + more
