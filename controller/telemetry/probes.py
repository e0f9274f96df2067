"""A set of probes that sees every link, and their frames (docs/design.md §4.4). Pure.

A probe leaves a switch as a packet-out through a given port, so its first link is certain. From the next switch on,
equal-cost hashing may choose: a later link counts as seen only while there is one next hop. A probe ends at the
loopback address of its destination, which hands it to its CPU, or at the first port with a host, where the switch
clones it to the CPU and drops it.

Links are switches' egress ports; hosts' own transmissions pass no queue of ours and cannot be seen in-band.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...topologies.model import Endpoint, Topology, mac_number
from ...topologies.routing import Routes
from ...wire.frames import DSCP_BULK
from ...wire.int_md import probe_frame
from .probe_format import DOMAIN_INSTRUCTIONS, INSTRUCTIONS, MAX_HOPS, PAYLOAD, PAYLOAD_BYTES


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of the plan; sent once every period."""

    index: int
    switch: str
    """The switch that it starts at."""
    port: int
    """The port through which that switch sends it out."""
    destination: str
    """The switch or host that it is addressed to."""
    certain: tuple[Endpoint, ...]
    """The links that it surely crosses, in order."""


def plan_probes(topology: Topology, routes: Routes) -> tuple[Probe, ...]:
    """Return a small set of probes that together surely cross every egress port of every switch whose link is up.

    Greedy set cover (within 1 + ln n of the least number): always the probe that crosses most links not yet covered,
    the shortest of these, the first in the order of the topology.
    """
    links = [
        link for link in topology.directed_links if topology.is_switch(link.node) and _is_up(topology, routes, link)
    ]
    candidates = list(_candidates(topology, routes, links))
    uncovered = set(links)
    heap = [(-len(set(path)), len(path), index) for index, (_, _, path) in enumerate(candidates)]
    heapq.heapify(heap)
    probes: list[Probe] = []
    while uncovered:
        gain, length, at = heapq.heappop(heap)
        start, destination, path = candidates[at]
        now = -len(uncovered.intersection(path))
        if now != gain:  # gains only shrink: put it back with its true one
            if now:
                heapq.heappush(heap, (now, length, at))
            continue
        uncovered.difference_update(path)
        probes.append(Probe(len(probes), start.node, start.port, destination, path))
    return tuple(probes)


def link_probes(topology: Topology, probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """Return a probe for each link of the plan's probes of several links, which crosses that link alone.

    Its switch sends it; the next switch, or this one if the link leads to a host, hands it to the controller. Indexes
    follow those of the plan.
    """
    links = dict.fromkeys(link for probe in probes if len(probe.certain) > 1 for link in probe.certain)
    return tuple(
        Probe(index, link.node, link.port, topology.peer(link).node, (link,))
        for index, link in enumerate(links, len(probes))
    )


class ProbeFrames:
    """The frames of a plan's probes."""

    def __init__(self, topology: Topology, probes: Sequence[Probe], dscp: int = DSCP_BULK) -> None:
        """`dscp`: their class. Those that measure queues ride the bulk class."""
        self._bodies: list[bytes] = []
        for probe in probes:
            first = topology.peer(Endpoint(probe.switch, probe.port)).node
            frame = probe_frame(
                source=int(topology.switch(probe.switch).address),
                destination=int(topology.node(probe.destination).address),
                source_mac=mac_number(topology.switch(probe.switch).mac),
                destination_mac=mac_number(topology.node(first).mac),
                instructions=INSTRUCTIONS,
                domain_instructions=DOMAIN_INSTRUCTIONS,
                remaining_hops=MAX_HOPS,
                payload=bytes(PAYLOAD_BYTES),
                dscp=dscp,
            )
            self._bodies.append(frame[:-PAYLOAD_BYTES])

    def frame(self, probe: int, sequence: int, first: int = 0) -> bytes:
        """Return the probe with this index. It carries it, counted from `first`, and a sequence number below
        `SEQUENCES`.
        """
        return self._bodies[probe] + PAYLOAD.pack(first + probe, sequence)


def payload_of(frame: bytes) -> tuple[int, int]:
    """Return (index, sequence) of one probe that has come back, of `PAYLOAD_BYTES` bytes or more."""
    index, sequence = PAYLOAD.unpack_from(frame, len(frame) - PAYLOAD_BYTES)
    return index, sequence


def _is_up(topology: Topology, routes: Routes, link: Endpoint) -> bool:
    """Routes to a neighbour take the links to it, all that are up."""
    far = topology.peer(link).node
    return routes.reaches(link.node, far) and link.port in routes.next_hops(link.node, far)


def _candidates(
    topology: Topology, routes: Routes, links: Sequence[Endpoint]
) -> Iterator[tuple[Endpoint, str, tuple[Endpoint, ...]]]:
    """(first link, destination, certain path) of every probe worth considering, each path once."""
    onward: dict[str, dict[str, tuple[Endpoint, ...]]] = {}
    for first in links:
        far = topology.peer(first).node
        if topology.is_host(far):
            yield first, far, (first,)
            continue
        if far not in onward:
            onward[far] = _certain_paths(topology, routes, far)
        seen: set[tuple[Endpoint, ...]] = set()
        for destination, path in onward[far].items():
            if path not in seen:
                seen.add(path)
                yield first, destination, (first, *path)


def _certain_paths(topology: Topology, routes: Routes, start: str) -> dict[str, tuple[Endpoint, ...]]:
    """Links from a switch on that do not depend on hashing, by destination, nearest first."""
    paths: dict[str, tuple[Endpoint, ...]] = {}
    reachable = [n.name for n in topology.nodes if routes.reaches(start, n.name)]
    for destination in sorted(reachable, key=lambda name: routes.hops(start, name)):
        if 1 + routes.hops(start, destination) > MAX_HOPS:
            break
        path: list[Endpoint] = []
        node = start
        while node != destination and len(ports := routes.next_hops(node, destination)) == 1:
            path.append(Endpoint(node, ports[0]))
            node = topology.peer(path[-1]).node
        paths[destination] = tuple(path)
    return paths
