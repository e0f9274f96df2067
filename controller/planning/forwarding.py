"""Routing entries of switches, and the resulting path of datagrams. Pure.

    destination ─▶ routes ─▶ its next hops, in the entry's order ─▶ the one that the hash of the flow names

Both ends of a job's messages use one UDP port, so a stream's path depends on its two addresses alone. v1model's
selector takes the CRC-32 of the fields that `routes` hashes (docs/design.md §4.2), in network order, modulo the number
of next hops, in the order of their entry; all switches that run BMv2 JSON do. A chip's choice is not known here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from ...topologies.model import Endpoint, Node, Topology, mac_number
from ...topologies.routing import Routes
from ...wire.aggregation import AGGREGATION_PORT
from ...wire.frames import PROTOCOL_UDP
from ..p4runtime.entries import ActionGroup, ActionSpec, Entry, FieldValue, Item, ProfileMember, call, entry
from ..p4runtime.tables import NEXT_HOPS, ROUTES

_FLOW: Final = struct.Struct("!IIBHH")
"""Source, destination, protocol, source port, destination port."""

Shares = Mapping[Endpoint, float]
"""The directed links of a way, with the probability of each: 1 where the way is known."""


def route_items(topology: Topology, switch: str, destination: Node, ports: Sequence[int]) -> list[Item]:
    """Return entries of a switch that send packets to a destination through these ports, one port for each flow.

    Args:
        topology: The fabric.
        switch: Name of the switch.
        destination: Host or switch whose address is routed.
        ports: Equal next ports.
    """
    if topology.switch(switch).target.one_shot:
        return [_one_shot_route(topology, switch, destination, ports)]
    # a member is its port; a number's meaning never changes, so a replacement misdirects no packet
    match = _match(destination)
    items: list[Item] = [ProfileMember(NEXT_HOPS, port, _forward(topology, switch, port)) for port in ports]
    if len(items) == 1:
        return [*items, entry(ROUTES, match, call("member", id=ports[0]))]
    chosen = tuple(sorted(ports))
    choice = ActionGroup(NEXT_HOPS, zlib.crc32(repr(chosen).encode()), chosen)
    return [*items, choice, entry(ROUTES, match, call("choice", id=choice.group_id))]


def copy_port(routes: Routes, switch: str, child: str, turn: int) -> int:
    """Return the port through which a switch sends a result to a child; children use equal ports in turn.

    Args:
        routes: Routes of the fabric.
        switch: Name of the switch.
        child: Name of the child, a host or a switch.
        turn: Number of the child among the switch's children.
    """
    ports = routes.next_hops(switch, child)
    return ports[turn % len(ports)]


def message_way(routes: Routes, source: str, destination: str) -> Shares:
    """Return the links that a job's messages take from node to node, in their order; where it is not known how a
    switch on the way chooses, all that they may take. Raises TopologyError where there is no way.
    """
    return flow_way(routes, source, destination, (AGGREGATION_PORT, AGGREGATION_PORT))


def flow_way(routes: Routes, source: str, destination: str, ports: tuple[int, int]) -> Shares:
    """Return the links of the path of UDP datagrams between two nodes.

    Args:
        routes: Routes of the fabric.
        source: Name of the sending node.
        destination: Name of the receiving node.
        ports: UDP source and destination port.

    Returns:
        Links in the order of the path, each with the share 1. If the choice of a switch on the path is unknown: all
        links that the datagrams may take, with their probabilities.

    Raises:
        TopologyError: There is no path.
    """
    known = _WAYS.setdefault(routes, {})
    if (way := known.get((source, destination, ports))) is None:
        links = _links(routes, source, source, destination, ports)
        shares = routes.shares(source, destination) if links is None else dict.fromkeys(links, 1.0)
        way = known.setdefault((source, destination, ports), shares)
    return way


def result_way(routes: Routes, node: str, child: str, turn: int) -> Shares:
    """Return the links of the path of results from a node of a tree to its child, in the form that `flow_way` has.

    Args:
        routes: Routes of the fabric.
        node: Name of the node, a switch or a parameter server's host.
        child: Name of the child.
        turn: Number of the child among the node's children.
    """
    if not routes.topology.is_switch(node) or len(routes.next_hops(node, child)) == 1:
        return message_way(routes, node, child)
    first = Endpoint(node, copy_port(routes, node, child, turn))
    behind = routes.topology.peer(first).node
    links = _links(routes, behind, node, child, (AGGREGATION_PORT, AGGREGATION_PORT))
    return {first: 1.0, **(routes.shares(behind, child) if links is None else dict.fromkeys(links, 1.0))}


_WAYS: WeakKeyDictionary[Routes, dict[tuple[str, str, tuple[int, int]], Shares]] = WeakKeyDictionary()
"""Cache of `flow_way`."""


def _links(routes: Routes, node: str, source: str, destination: str, ports: tuple[int, int]) -> list[Endpoint] | None:
    """Links of a path from a node on, for datagrams of this source; None if a choice on the path is unknown."""
    topology, links = routes.topology, list[Endpoint]()
    flow: int | None = None
    while node != destination:
        onward = routes.next_hops(node, destination)
        port = onward[0]
        if len(onward) > 1:
            if not topology.switch(node).target.is_emulated:
                return None
            if flow is None:
                flow = _flow_hash(topology.node(source), topology.node(destination), ports)
            calls = _one_shot_route(topology, node, topology.node(destination), onward).calls
            port = dict(calls[flow % len(calls)].args)["port"]
        links.append(Endpoint(node, port))
        node = topology.peer(links[-1]).node
    return links


def _flow_hash(source: Node, destination: Node, ports: tuple[int, int]) -> int:
    addresses = int(source.address), int(destination.address)
    return zlib.crc32(_FLOW.pack(*addresses, PROTOCOL_UDP, *ports))


def _one_shot_route(topology: Topology, switch: str, destination: Node, ports: Sequence[int]) -> Entry:
    return entry(ROUTES, _match(destination), *(_forward(topology, switch, port) for port in ports))


def _match(destination: Node) -> Mapping[str, FieldValue]:
    return {"dst_addr": (int(destination.address), 32)}


def _forward(topology: Topology, switch: str, port: int) -> ActionSpec:
    far = topology.node(topology.peer(Endpoint(switch, port)).node)
    own = topology.switch(switch)
    return call("forward", port=port, src_mac=mac_number(own.mac), dst_mac=mac_number(far.mac))
