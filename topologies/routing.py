"""Equal-cost shortest paths, by ports: what IP routing does with a packet to any node's address.

Hosts forward nothing. A path is a sequence of directed links, each named by the endpoint that a packet leaves through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from .errors import TopologyError
from .model import Endpoint, Topology


class Routes:
    """Next hops of every node towards every host and every switch's loopback. Immutable."""

    def __init__(self, topology: Topology, down: Collection[Endpoint] = ()) -> None:
        """`down`: links to do without, each named by either of its ends."""
        self.topology = topology
        self._down = frozenset(down) | {topology.peer(end) for end in down}
        self._ports: dict[str, Mapping[str, tuple[int, ...]]] = {}
        self._hops: dict[str, Mapping[str, int]] = {}
        self._shares: dict[tuple[str, str], Mapping[Endpoint, float]] = {}
        """What `shares` has answered before."""
        for node in topology.nodes:
            self._solve(node.name)

    @property
    def down(self) -> frozenset[Endpoint]:
        """Both ends of every link to do without."""
        return self._down

    def next_hops(self, node: str, destination: str) -> tuple[int, ...]:
        """The ports, ascending, through which shortest paths from `node` to `destination` leave; () at the destination.

        Raises `TopologyError` when there is no way, or no such node.
        """
        self.hops(node, destination)
        return self._ports[destination][node]

    def hops(self, node: str, destination: str) -> int:
        """Links on a shortest path. Raises `TopologyError` when there is no way, or no such node."""
        self.topology.node(node)
        self.topology.node(destination)
        if node not in self._hops[destination]:
            raise TopologyError(
                f"{self.topology.name}: no way from {node} to {destination} without the links that are down"
            )
        return self._hops[destination][node]

    def reaches(self, node: str, destination: str) -> bool:
        """Whether there is any way."""
        return node in self._hops[destination]

    def unique_path(self, source: str, destination: str) -> tuple[Endpoint, ...] | None:
        """The shortest path where there is only one; None where hashing would decide, or where there is no way."""
        path: list[Endpoint] = []
        node = source
        while node != destination:
            ports = self._ports[destination].get(node, ())
            if len(ports) != 1:
                return None
            path.append(Endpoint(node, ports[0]))
            node = self.topology.peer(path[-1]).node
        return tuple(path)

    def shares(self, source: str, destination: str) -> Mapping[Endpoint, float]:
        """Every directed link that a flow may take, with the share of all flows that equal-cost hashing puts there."""
        if (known := self._shares.get((source, destination))) is not None:
            return known
        shares: dict[Endpoint, float] = {}
        arriving = {source: 1.0}
        for _ in range(self.hops(source, destination)):
            onward: dict[str, float] = {}
            for node, share in arriving.items():
                ports = self._ports[destination][node]
                for port in ports:
                    link = Endpoint(node, port)
                    shares[link] = share / len(ports)
                    far = self.topology.peer(link).node
                    onward[far] = onward.get(far, 0.0) + share / len(ports)
            arriving = onward
        return self._shares.setdefault((source, destination), shares)

    def _solve(self, destination: str) -> None:
        """Breadth first from the destination; of each node, the ports whose far end is one hop nearer."""
        topology = self.topology
        hops = {destination: 0}
        ports: dict[str, list[int]] = {destination: []}
        queue = deque([destination])
        while queue:
            node = queue.popleft()
            if node != destination and topology.is_host(node):
                continue
            for port, far in topology.neighbours(node).items():
                if Endpoint(node, port) in self._down:
                    continue
                if far.node not in hops:
                    hops[far.node] = hops[node] + 1
                    queue.append(far.node)
                if hops[far.node] == hops[node] + 1:
                    ports.setdefault(far.node, []).append(far.port)
        self._hops[destination] = hops
        self._ports[destination] = {node: tuple(sorted(found)) for node, found in ports.items()}
