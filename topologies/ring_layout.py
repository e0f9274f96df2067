"""Positions of the nodes of a fabric without tiers: switches on a ring, their hosts on a wider one outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import cos, pi, sin
from typing import Final

from .model import Topology

HOSTS_OUTSIDE: Final = 1.7
"""Distance of the ring of hosts from the ring of switches."""
_BETWEEN: Final = 1.6
"""Space between two switches."""
_GAP: Final = 0.7
"""Space between the hosts of two switches."""


def ring_places(
    topology: Topology, width: Callable[[str], float], widest: float | None = None
) -> dict[str, tuple[float, float]]:
    """Place switches on an ellipse in the order in which a depth-first search meets them, hosts outside theirs.

    Args:
        topology: The fabric.
        width: Width of a node's box.
        widest: Maximum distance between the outermost nodes from left to right; None for a circle of any size.

    Returns:
        x to the right and y up for each node; the first switch is at the top, the others follow clockwise.
    """
    hosts = {
        switch: [far.node for far in topology.neighbours(switch).values() if topology.is_host(far.node)]
        for switch in _order(topology)
    }
    arcs = {
        switch: max([width(switch) + 0.2, sum(width(host) + 0.2 for host in mine)]) + _GAP
        for switch, mine in hosts.items()
    }
    around = sum(width(switch) + _BETWEEN for switch in hosts)
    outer = max(sum(arcs.values()), around + 2 * pi * HOSTS_OUTSIDE) / (2 * pi)
    across = 1.0 if widest is None else min(1.0, widest / (2 * outer))
    full = sum(arcs.values())
    places: dict[str, tuple[float, float]] = {}

    def put(node: str, turn: float, radius: float) -> None:
        places[node] = radius * across * sin(2 * pi * turn), radius / across * cos(2 * pi * turn)

    angle = -arcs[next(iter(arcs))] / 2
    for switch, mine in hosts.items():
        middle = angle + arcs[switch] / 2
        put(switch, middle / full, outer - HOSTS_OUTSIDE)
        step = (arcs[switch] - _GAP) / max(len(mine), 1)
        for index, host in enumerate(mine):
            put(host, (middle + (index - (len(mine) - 1) / 2) * step) / full, outer)
        angle += arcs[switch]
    return places


def crosses_boxes(topology: Topology, tiers: Mapping[int, list[str]]) -> bool:
    """Return True if a drawing in tiers would have a link within a tier that runs through other switches."""
    place = {switch: (tier, index) for tier, row in tiers.items() for index, switch in enumerate(row)}
    for link in topology.links:
        if link.a.node in place and link.b.node in place:
            (tier, at), (other, far) = place[link.a.node], place[link.b.node]
            if tier == other and abs(at - far) > 1:
                return True
    return False


def _order(topology: Topology) -> list[str]:
    """Switches by a depth-first search from the first one, by ports: neighbours on a ring stay neighbours."""
    order: dict[str, None] = {}
    for first in topology.switches:
        stack = [first.name]
        while stack:
            if (switch := stack.pop()) in order:
                continue
            order[switch] = None
            far = [end.node for end in topology.neighbours(switch).values() if topology.is_switch(end.node)]
            stack += reversed([node for node in far if node not in order])
    return list(order)
