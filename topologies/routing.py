"""Equal-cost shortest paths, by ports: IP routing of a packet to any node's address.

Hosts forward nothing. A path is a sequence of directed links, each named by the endpoint that a packet leaves through.
Switches are searched breadth first, each when a path to it is first requested; a host has its switch's position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from .errors import TopologyError
from .model import Endpoint, Topology


class Routes:
    """Next hops of every node towards every host and every switch's loopback. Immutable."""

    def __init__(self, topology: Topology, down: Collection[Endpoint] = ()) -> None:
        """`down`: links to do without, each named by either of its ends."""
        self.topology = topology
        self._down = frozenset(down) | {topology.peer(end) for end in down}
        self._links: dict[str, list[tuple[int, str]]] = {
            switch.name: [
                (port, far.node)
                for port, far in topology.neighbours(switch.name).items()
                if topology.is_switch(far.node) and Endpoint(switch.name, port) not in self._down
            ]
            for switch in topology.switches
        }
        """Ports of each switch that lead to other switches, with the neighbour's name."""
        self._hops: dict[str, Mapping[str, int]] = {}
        """Number of links to a destination from every switch that reaches it, by destination; filled on request."""
        self._ports: dict[tuple[str, str], tuple[int, ...]] = {}
        """Cache of `_ports_to`."""
        self._single: dict[str, frozenset[str]] = {}
        """Switches with exactly one shortest path to a destination, by destination; filled on request."""
        self._shares: dict[tuple[str, str], Mapping[Endpoint, float]] = {}
        """Cache of `shares`."""

    @property
    def down(self) -> frozenset[Endpoint]:
        """Both ends of every link to do without."""
        return self._down

    def next_hops(self, node: str, destination: str) -> tuple[int, ...]:
        """Return the ports, ascending, through which shortest paths from `node` to `destination` leave; () at the
        destination.

        Raises `TopologyError` when there is no way, or no such node.
        """
        self.hops(node, destination)
        return self._ports_to(node, destination)

    def hops(self, node: str, destination: str) -> int:
        """Return links on a shortest path. Raises `TopologyError` when there is no way, or no such node."""
        if node not in self._links:
            self.topology.node(node)
        if (hops := self._distance(node, destination)) is None:
            raise self._no_way(node, destination)
        return hops

    def _no_way(self, node: str, destination: str) -> TopologyError:
        return TopologyError(
            f"no way from {node} to {destination} without the links that are down", place=self.topology.name, value=node
        )

    def reaches(self, node: str, destination: str) -> bool:
        """Return True if there is a path."""
        self.topology.node(destination)
        if node == destination:
            return True
        ends = (node, destination)
        if any(Endpoint(end, 0) in self._down for end in ends if self.topology.is_host(end)):
            return False
        start, end = map(self._switch_of, ends)
        return start == end or self._part[start] == self._part[end]

    def unique_path(self, source: str, destination: str) -> tuple[Endpoint, ...] | None:
        """Return the shortest path where there is only one; None where hashing would decide, or where there is no
        way.
        """
        if not self.reaches(source, destination):
            return None
        path: list[Endpoint] = []
        node = source
        while node != destination:
            ports = self._ports_to(node, destination)
            if len(ports) != 1:
                return None
            path.append(Endpoint(node, ports[0]))
            node = self.topology.peer(path[-1]).node
        return tuple(path)

    def is_only_path(self, nodes: Sequence[str]) -> bool:
        """Return True if these nodes, one after another, are the only shortest path between the first and the last.

        Only the surroundings of both ends are searched, each up to the middle of the path.
        """
        switches = [node for node in nodes if node in self._links]
        hosts = [(nodes[0], switches[0]), (nodes[-1], switches[-1])]
        if any(host != switch and self._switch_of(host) != switch for host, switch in hosts):
            return False
        if any(far not in (near for _, near in self._links[node]) for node, far in pairwise(switches)):
            return False
        length = len(switches) - 1
        ahead = self._paths_around(switches[0], length // 2)
        behind = self._paths_around(switches[-1], length - length // 2)
        meetings = [
            (ahead[node][0] + behind[node][0], ahead[node], behind[node]) for node in ahead.keys() & behind.keys()
        ]
        if not meetings or min(meeting[0] for meeting in meetings) < length:
            return False
        return sum(one[1] * other[1] for _, one, other in meetings if one[0] == length // 2) == 1

    def _paths_around(self, switch: str, radius: int) -> dict[str, tuple[int, int]]:
        """Distance of each switch up to the radius, and the number of shortest paths to it."""
        lengths = {switch: (0, 1)}
        level = {switch: 1}
        for distance in range(1, radius + 1):
            onward: dict[str, int] = {}
            for node, paths in level.items():
                for _, far in self._links[node]:
                    if far not in lengths:
                        onward[far] = onward.get(far, 0) + paths
            lengths |= {node: (distance, paths) for node, paths in onward.items()}
            level = onward
        return lengths

    def is_single(self, source: str, destination: str) -> bool:
        """Return True if there is exactly one shortest path."""
        end = destination if destination in self._links else self._switch_of(destination)
        if (known := self._single.get(end)) is None:
            known = self._single[end] = self._with_one_path_to(end)
        start = source if source in self._links else self._switch_of(source)
        return start in known and self.reaches(source, destination)

    def shares(self, source: str, destination: str) -> Mapping[Endpoint, float]:
        """Return every directed link that a flow may take, with the share of all flows that equal-cost hashing puts
        there.
        """
        if (known := self._shares.get((source, destination))) is not None:
            return known
        topology = self.topology
        topology.node(source)
        if not self.reaches(source, destination):
            raise self._no_way(source, destination)
        shares: dict[Endpoint, float] = {}
        if source == destination:
            return self._shares.setdefault((source, destination), shares)
        start, end = self._switch_of(source), self._switch_of(destination)
        if topology.is_host(source):
            shares[Endpoint(source, 0)] = 1.0
        hops = self._hops_between(start, end)
        arriving = {start: 1.0}
        for left in range(hops[start], 0, -1):
            onward: dict[str, float] = {}
            for node, share in arriving.items():
                nearer = [(port, far) for port, far in self._links[node] if hops.get(far) == left - 1]
                for port, far in nearer:
                    shares[Endpoint(node, port)] = share / len(nearer)
                    onward[far] = onward.get(far, 0.0) + share / len(nearer)
            arriving = onward
        if topology.is_host(destination):
            shares[topology.peer(Endpoint(destination, 0))] = 1.0
        return self._shares.setdefault((source, destination), shares)

    def _distance(self, node: str, destination: str) -> int | None:
        """Links on a shortest path; None if there is none. Raises `TopologyError` for an unknown destination."""
        if (known := self._hops.get(destination)) is not None and node in known:
            return known[node]
        topology, more = self.topology, 0
        topology.node(destination)
        if node == destination:
            return 0
        for end in (node, destination):
            if topology.is_host(end):
                if Endpoint(end, 0) in self._down:
                    return None
                more += 1
        start, end = self._switch_of(node), self._switch_of(destination)
        between = self._hops_to(end).get(start)
        return None if between is None else between + more

    def _ports_to(self, node: str, destination: str) -> tuple[int, ...]:
        """Result of `next_hops` for a reachable destination."""
        topology = self.topology
        if node == destination:
            return ()
        if topology.is_host(node):
            return (0,)
        end = self._switch_of(destination)
        if node == end:
            return (topology.peer(Endpoint(destination, 0)).port,)
        if (known := self._ports.get((node, end))) is None:
            hops = self._hops_to(end)
            nearer = hops[node] - 1
            known = self._ports[node, end] = tuple(port for port, far in self._links[node] if hops[far] == nearer)
        return known

    @cached_property
    def _part(self) -> Mapping[str, int]:
        """Number of the connected part of the fabric that each switch is in: links go both ways."""
        parts: dict[str, int] = {}
        for first in self._links:
            if first in parts:
                continue
            parts[first] = len(parts)
            queue = [first]
            for node in queue:
                for _, far in self._links[node]:
                    if far not in parts:
                        parts[far] = parts[first]
                        queue.append(far)
        return parts

    def _switch_of(self, node: str) -> str:
        """A host's switch, or the switch itself."""
        return self.topology.peer(Endpoint(node, 0)).node if self.topology.is_host(node) else node

    def _with_one_path_to(self, switch: str) -> frozenset[str]:
        """The switches, this one among them."""
        hops = self._hops_to(switch)
        single = {switch}
        for node, distance in hops.items():  # nearest first
            nearer = [far for _, far in self._links[node] if hops[far] < distance]
            if len(nearer) == 1 and nearer[0] in single:
                single.add(node)
        return frozenset(single)

    def _hops_between(self, start: str, end: str) -> Mapping[str, int]:
        """Links to `end` from `start` and from every switch nearer to it; only as much of the fabric is searched."""
        if (known := self._hops.get(end)) is not None:
            return known
        hops, level, distance = {end: 0}, {end}, 0
        while start not in hops:
            level = {far for node in level for _, far in self._links[node] if far not in hops}
            distance += 1
            hops |= dict.fromkeys(level, distance)
        return hops

    def _hops_to(self, switch: str) -> Mapping[str, int]:
        """Links from every switch that reaches this one, breadth first from it: links go both ways."""
        if (known := self._hops.get(switch)) is None:
            hops = {switch: 0}
            queue = [switch]
            for node in queue:
                onward = hops[node] + 1
                for _, far in self._links[node]:
                    if far not in hops:
                        hops[far] = onward
                        queue.append(far)
            known = self._hops[switch] = hops
        return known
