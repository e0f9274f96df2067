"""Switches whose pipes have registers each of its own: a node's children come in by ports of one pipe, or another node
sums them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....topologies.model import Topology
from ....topologies.routing import Routes
from .problem import Placement, PlacementError, Problem


def arrivals(topology: Topology, routes: Routes, source: str, switch: str) -> list[int]:
    """Return the ports of a switch through which packets of a node to it may come, in ascending order.

    Args:
        topology: The fabric.
        routes: Its routes.
        source: Name of the node.
        switch: Name of the switch.
    """
    return sorted(far.port for far in map(topology.peer, routes.shares(source, switch)) if far.node == switch)


def place_by_pipes(place: Callable[[Problem], Placement], problem: Problem) -> Placement:
    """Return the result of `place` without switches whose children come in by several pipes; its note names them.

    Raises the exceptions of `place`, and PlacementError if it continues to use them.
    """
    barred: list[str] = []
    while several := summing_by_pipes(placement := place(problem), problem.routes):
        if not several.isdisjoint(barred):
            raise PlacementError(
                "no room for the job, and they are given children",
                place=", ".join(sorted(several)),
                value=tuple(sorted(several)),
            )
        barred += sorted(several)
        room = problem.room if problem.room is not None else {switch.name: 1 for switch in problem.topology.switches}
        problem = replace(problem, room={**room, **dict.fromkeys(several, 0)})
    if not barred:
        return placement
    return placement.noted(
        f"its children would come to {', '.join(barred)} by ports of several pipes, each of which sums for itself"
    )


def summing_by_pipes(placement: Placement, routes: Routes) -> set[str]:
    """Return the switches to which a placement gives children that come in by several pipes. Raises TopologyError
    where no way leads from a child to its node.
    """
    topology, switches = routes.topology, set[str]()
    for node, children in placement.children.items():
        if topology.is_switch(node) and (target := topology.switch(node).target).pipes is not None:
            ports = (port for child in children for port in arrivals(topology, routes, child, node))
            if len({target.pipe_of(port) for port in ports}) > 1:
                switches.add(node)
    return switches
