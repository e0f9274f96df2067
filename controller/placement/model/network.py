"""Possible destinations of streams, as a flow network: unit supplies at switches, routed arcs, capacities at the sinks.

::

    rack ──▶ … ──▶ switch ──▶ SINK      summed in the switch, at most FAN_IN streams
      └──▶ … ──▶ server ──▶ SINK             by the only shortest path

A stream may be summed by a switch only if its shortest path there is the only one, so that it meets the loads that were
counted. Workers of one rack are alike; a switch's output after summing is a stream too.

Two kinds of pairs of a source and a sink are not in the network, and their streams are decided outside it. Streams that
hashing spreads over several paths share links with other arcs, which no arc of their own can express. And arcs are
shared by all sources, so a flow determines who goes where only if each source has one path to each sink, its routed
one; pairs without that are left out. Leaf-spines and fat-trees lose none by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ....topologies.model import Endpoint
from ....topologies.routing import Routes
from ....wire.aggregation import FAN_IN
from .cost import LinkStreams, PlacementCosts

SINK: Final = ""


@dataclass(frozen=True, slots=True)
class Arc:
    """A step from switch to switch, to the server, or (head SINK) into the sum at its tail."""

    tail: str
    head: str
    links: tuple[int, ...] = ()
    """Directed links, up and down, that one unit on this arc adds a stream to."""


Path = tuple[Arc, ...]


@dataclass(frozen=True)
class StreamNetwork:
    """One choice: streams of the `supply` go to sinks along `paths`, which end in their sink's arc to SINK."""

    supply: Mapping[str, int]
    """Streams that start at each switch, at most."""
    paths: Mapping[tuple[str, str], Path]
    """Paths by (source, sink), nearest sinks first."""
    arcs: tuple[Arc, ...]
    units: tuple[int, ...]
    """Maximum number of streams on each arc."""

    @cached_property
    def _sinks(self) -> Mapping[str, tuple[str, ...]]:
        return {source: tuple(sink for start, sink in self.paths if start == source) for source in self.supply}

    def sinks(self, source: str) -> tuple[str, ...]:
        """Return the sinks that a source's streams may reach."""
        return self._sinks[source]

    def times(self, costs: PlacementCosts, streams: LinkStreams) -> list[list[list[float]]]:
        """Return T_e in seconds, by arc and directed link on it, with 1 … units streams more than the given ones."""
        return [
            [[costs.link_seconds(link, streams.load(link, unit)) for unit in range(1, units + 1)] for link in arc.links]
            for arc, units in zip(self.arcs, self.units, strict=True)
        ]

    def decompose(self, supply: Mapping[str, int], flows: Sequence[int]) -> dict[tuple[str, str], int]:
        """Return the number of streams from each source to each sink, from the flow on every arc."""
        left = dict(zip(self.arcs, flows, strict=True))
        leaving: dict[str, list[Arc]] = {}
        for arc in sorted(left, key=lambda arc: arc.head != SINK):
            leaving.setdefault(arc.tail, []).append(arc)
        assigned: dict[tuple[str, str], int] = {}
        for source, count in supply.items():
            for _ in range(count):
                node, at = source, source
                while node != SINK:
                    arc = next(arc for arc in leaving[node] if left[arc])
                    left[arc] -= 1
                    at, node = node, arc.head
                assigned[source, at] = assigned.get((source, at), 0) + 1
        return assigned


def build(routes: Routes, supply: Mapping[str, int], sinks: Iterable[str], server: str | None) -> StreamNetwork:
    """Return the network of streams from switches to switches, and to the server if there is one.

    Args:
        routes: Routes of the fabric.
        supply: Number of streams that begin at each switch.
        sinks: Switches at which streams may end.
        server: Host of the parameter server; None: there is none.
    """
    topology = routes.topology
    number = {link: number for number, link in enumerate(topology.directed_links)}
    paths: dict[tuple[str, str], Path] = {}
    if server is not None:
        entry = topology.attached_switch(server).name
        port = Endpoint(server, 0)
        access = number[topology.peer(port)], number[port]
        for source in supply:
            path = routes.unique_path(source, entry)
            if path is not None:
                steps = (*_steps(routes, path, number), Arc(entry, server))
                paths[source, server] = (*steps, Arc(server, SINK, access))
    more: dict[tuple[str, str], Path] = {}
    for source in supply:
        for sink in sinks:
            path = routes.unique_path(source, sink)
            if path is not None:
                more[source, sink] = (*_steps(routes, path, number), Arc(sink, SINK))
    if _is_routed(paths | more):
        paths |= more
    else:
        for pair in sorted(more, key=lambda pair: (len(more[pair]), pair)):
            if _is_routed(paths | {pair: more[pair]}):
                paths[pair] = more[pair]
    reach: dict[Arc, set[str]] = {}
    for (source, _), way in paths.items():
        for arc in way:
            reach.setdefault(arc, set()).add(source)
    units = [sum(supply[source] for source in sources) for sources in reach.values()]
    capped = tuple(min(n, FAN_IN) if arc.head == SINK else n for arc, n in zip(reach, units, strict=True))
    ordered = dict(sorted(paths.items(), key=lambda item: (len(item[1]), item[0])))
    return StreamNetwork(dict(supply), ordered, tuple(reach), capped)


def _steps(routes: Routes, path: Sequence[Endpoint], number: Mapping[Endpoint, int]) -> Path:
    ends = [(end, routes.topology.peer(end)) for end in path]
    return tuple(Arc(end.node, peer.node, (number[end], number[peer])) for end, peer in ends)


def _is_routed(paths: Mapping[tuple[str, str], Path]) -> bool:
    """Return True if in the union of these paths each source has only its own path to each reachable sink.

    This holds if, in a breadth-first tree from the source, every other arc leads back to an ancestor (so that no second
    simple path exists), and the tree's path to every sink is the given one.
    """
    leaving: dict[str, dict[str, Arc]] = {}
    for path in paths.values():
        for arc in path:
            if leaving.setdefault(arc.tail, {}).setdefault(arc.head, arc) != arc:
                return False  # parallel links
    for source in {source for source, _ in paths}:
        way: dict[str, Path] = {source: ()}
        ancestors: dict[str, frozenset[str]] = {source: frozenset((source,))}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for head, arc in leaving.get(node, {}).items():
                if head == SINK:
                    if paths.get((source, node)) != (*way[node], arc):
                        return False
                elif head not in way:
                    way[head] = (*way[node], arc)
                    ancestors[head] = ancestors[node] | {head}
                    queue.append(head)
                elif head not in ancestors[node]:
                    return False
    return True
