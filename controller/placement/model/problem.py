"""Input and output of placement. Pure data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ....topologies.model import Endpoint, Topology
from ....topologies.routing import Routes
from ....wire.aggregation import FAN_IN
from ...errors import ControllerError
from .loads import LinkLoad


class PlacementError(ControllerError):
    """A job that cannot be placed, a placement that is no tree over it, or an unknown strategy."""


class NoTree(PlacementError):
    """No tree sums the job with the present slots, fan-in and paths."""


@dataclass(frozen=True)
class Problem:
    """One job to place. Raises PlacementError when it cannot be a job of this fabric."""

    routes: Routes
    workers: tuple[str, ...]
    """The hosts whose gradients are summed, by rank."""
    server: str | None
    """The parameter server's host, which is then the root; None: a switch is."""
    gradient_bytes: int
    """Bytes of one worker's stream on a link, headers included."""
    loads: Mapping[Endpoint, LinkLoad] = field(default_factory=dict)
    """Other traffic of each directed link; missing links are idle."""
    room: Mapping[str, int] | None = None
    """Number of further jobs with as many slots as this one that each switch takes; a missing switch takes none. None:
    every switch has room.
    """
    fan_in: int = FAN_IN
    """The most children that a node takes."""
    slack: float = 0.0
    """Allowed slowdown relative to the best tree, as a share, in exchange for fewer hops or switches."""
    persistence: float = 1.0
    """Share of links whose present load is expected to last for the next step (`controller.planning.persistence`)."""
    others: Mapping[Endpoint, float] = field(default_factory=dict)
    """Bytes that the fabric's other jobs bring onto each directed link in a step of theirs. They are known, so `loads`
    is without them.
    """
    unreachable: frozenset[str] = frozenset()
    """Switches that do not answer the controller, or that no live link leads to; `room` has 0 for them."""

    def __post_init__(self) -> None:
        hosts = self.hosts
        if not self.workers:
            raise PlacementError(
                "a job without them cannot be placed; name at least one host", place="workers", value=()
            )
        if len(set(hosts)) < len(hosts):
            raise PlacementError(
                f"{', '.join(hosts)}: one is named twice; workers and server are different hosts",
                place="hosts",
                value=hosts,
            )
        for host in hosts:
            self.topology.host(host)
        if self.gradient_bytes < 1:
            raise PlacementError(
                f"{self.gradient_bytes} must be positive", place="gradient_bytes", value=self.gradient_bytes
            )
        if not 0 <= self.slack < 1:
            raise PlacementError(f"{self.slack} is not a share in [0, 1)", place="slack", value=self.slack)
        if not 0 <= self.persistence <= 1:
            raise PlacementError(
                f"{self.persistence} is not a share in [0, 1]", place="persistence", value=self.persistence
            )
        if not 1 <= self.fan_in <= FAN_IN:
            raise PlacementError(
                f"{self.fan_in} is not in 1…{FAN_IN}, which the program's contributor bits allow",
                place="fan_in",
                value=self.fan_in,
            )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The workers, and the server where there is one."""
        return self.workers if self.server is None else (*self.workers, self.server)

    @property
    def topology(self) -> Topology:
        """Fabric of the routes."""
        return self.routes.topology

    def takes(self, switch: str) -> bool:
        """Return True if a switch has memory for this job."""
        return self.topology.switch(switch).slots > 0 and (self.room is None or self.room.get(switch, 0) > 0)

    def may_send(self, child: str, parent: str) -> bool:
        """Return True if a stream and its result certainly take the links that are counted.

        These are streams to the server, whose loads are counted for all paths of the hashing; to a switch with room by
        the only shortest path; or to a neighbour.
        """
        if not self.routes.reaches(child, parent):
            return False
        if parent == self.server:
            return True
        if not self.takes(parent):
            return False
        start = self.topology.attached_switch(child).name if self.topology.is_host(child) else child
        return self.routes.is_single(start, parent) or self.routes.hops(start, parent) <= 1

    def check_ways(self) -> None:
        """Check that all workers have a path to the server, or without one to the first worker.

        Raises:
            PlacementError: Some have none; the error names them.
        """
        end = self.server or self.workers[0]
        if lost := [name for name in self.workers if not self.routes.reaches(name, end)]:
            raise PlacementError(
                f"no way leads from {', '.join(lost)} to {end} without the links that are down", value=(*lost, end)
            )

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """Switches with workers on them, in the workers' order."""
        racks: dict[str, list[str]] = {}
        attached = self.topology.attached_switch
        for worker in self.workers:
            racks.setdefault(attached(worker).name, []).append(worker)
        return {switch: tuple(workers) for switch, workers in racks.items()}


def way_up(node: str, above: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the hops from a node to the root of its tree, `above` being the node that each but the root sends to."""
    while (parent := above.get(node)) is not None:
        yield node, parent
        node = parent


@dataclass(frozen=True)
class Placement:
    """Tree in which a job's streams are summed. Equal placements write equal table entries."""

    aggregators: Mapping[str, str]
    """Destination of each worker: a switch, or the server."""
    parents: Mapping[str, str]
    """Parent of each used switch except the root."""
    root: str
    """The node where all streams end: the server, or a switch."""
    note: str = field(default="", compare=False)
    """Text for people: shortfalls from the strategy's goal; mostly empty."""

    @classmethod
    def trimmed(cls, aggregators: Mapping[str, str], parents: Mapping[str, str], root: str) -> Placement:
        """Build a placement without the switches in `parents` that have no children."""
        used: set[str] = set()
        for node in set(aggregators.values()):
            while node in parents and node not in used:
                used.add(node)
                node = parents[node]
        return cls(aggregators, {name: parents[name] for name in sorted(used)}, root)

    def noted(self, note: str) -> Placement:
        """Return the placement with this text in front of its note."""
        return replace(self, note=f"{note}; {self.note}" if self.note else note)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(child, parent) of every worker and every switch except the root."""
        return (*self.aggregators.items(), *self.parents.items())

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that each aggregating node waits for."""
        children: defaultdict[str, list[str]] = defaultdict(list, {self.root: []})
        for above in (self.aggregators, self.parents):
            for child, node in above.items():
                children[node].append(child)
        return {node: tuple(mine) for node, mine in children.items()}

    @property
    def switches(self) -> frozenset[str]:
        """The switches that sum below the root; a root that is a switch is `root` alone."""
        return frozenset(self.parents)

    def check(self, problem: Problem) -> None:
        """Check that this is a tree over the problem's workers and that every switch has room for it.

        Raises:
            PlacementError: It is not.
        """
        if self.aggregators.keys() != set(problem.workers):
            raise PlacementError(
                f"is for {', '.join(sorted(self.aggregators))}; the job's workers are {', '.join(problem.workers)}",
                place="placement.aggregators",
                value=tuple(sorted(self.aggregators)),
            )
        if problem.server is not None and self.root != problem.server:
            raise PlacementError(
                f"{self.root} is not the job's server {problem.server}, which must be the root",
                place="placement.root",
                value=self.root,
            )
        self.check_tree(problem.topology, problem.server, problem.fan_in)
        for node in self.children:
            if node != problem.server and not problem.takes(node):
                raise PlacementError(
                    f"{node} has no slots free for this job; choose another", place="placement.switches", value=node
                )

    def check_tree(self, topology: Topology, server: str | None, fan_in: int = FAN_IN) -> None:
        """Raise PlacementError unless all streams run together at the root, through nodes that can sum them:
        switches, and the server where it is the root, none of them with more children than a node takes.
        """
        if self.root in self.parents:
            parent = self.parents[self.root]
            raise PlacementError(
                f"{parent} is a parent of the root", place=f"placement.parents.{self.root}", value=parent
            )
        children = self.children
        for node, mine in children.items():
            if not topology.is_switch(node) and not node == server == self.root:
                raise PlacementError(
                    f"{node} cannot aggregate; only switches and the server can, as root",
                    place="placement.aggregators",
                    value=node,
                )
            if not mine:
                raise PlacementError(f"nothing leads to {node}", place="placement.root", value=node)
            if len(mine) > fan_in:
                raise PlacementError(
                    f"{len(mine)} children; a node takes at most {fan_in}: add a level",
                    place=f"placement.children.{node}",
                    value=len(mine),
                )
            if node != self.root and node not in self.parents:
                raise PlacementError(f"none, and the root is {self.root}", place=f"placement.parents.{node}")
        leads = {self.root}
        for switch in self.parents:
            if switch not in children:
                raise PlacementError("it has no children; leave it out", place=f"placement.parents.{switch}", value=())
            seen: list[str] = []
            node = switch
            while node not in leads:
                if node in seen:
                    circle = (*seen, node)
                    raise PlacementError(
                        f"a circle: {' → '.join(circle)}; it must end at the root {self.root}",
                        place="placement.parents",
                        value=circle,
                    )
                seen.append(node)
                node = self.parents[node]
            leads.update(seen)
