"""A topology as a fabric in virtual time: its switches, its hosts, and links as its file has them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..emulator.fabric import Fabric
from ..emulator.frames import ETHERNET_BYTES
from ..emulator.runtime.engine import MAX_FRAME
from ..emulator.switch import Switch
from ..topologies.model import Switch as SwitchNode
from ..topologies.model import Topology


def build_fabric(
    topology: Topology,
    *,
    seed: int,
    start: Callable[[SwitchNode, Switch], None] | None = None,
    poll_ns: int = 0,
    sinks: Collection[str] = (),
    make: Callable[[int, int], Fabric] = Fabric,
    **link: Any,
) -> tuple[Fabric, dict[str, Switch]]:
    """Build a fabric whose nodes have the topology's names; return it and its switches by name.

    The longest frame is the one that the link with the largest MTU carries.

    Args:
        topology: Hosts, switches and links.
        seed: Seed of all random draws.
        start: Loads each switch's program; None leaves switches without one.
        poll_ns: Hosts receive their frames at multiples of this time.
        sinks: Hosts that only count frames.
        make: Makes the empty fabric of a seed and the longest frame in bytes.
        **link: Settings of every link, as `Fabric.add_link` takes them; they override the topology's.
    """
    longest = ETHERNET_BYTES + max((connection.mtu for connection in topology.links), default=0)
    fabric = make(seed, max(MAX_FRAME, longest))
    switches = {}
    for node in topology.switches:
        switch = Switch(node.device_id, cpu_port=node.target.cpu_port, drop_port=node.target.drop_port)
        if start is not None:
            start(node, switch)
        fabric.add_switch(node.name, switch)
        switches[node.name] = switch
    for host in topology.hosts:
        fabric.add_host(host.name, poll_ns=poll_ns, sink=host.name in sinks)
    for connection in topology.links:
        settings = {
            "rate_bps": connection.rate_bps,
            "delay_ns": connection.delay_ns,
            "loss": connection.loss,
            "queue_packets": connection.queue_packets,
            "mtu": connection.mtu,
        }
        fabric.add_link(connection.a, connection.b, **{**settings, **link})
    return fabric, switches
