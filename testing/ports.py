"""A switch with a host at each port: the smallest topology for tests of one program's tables."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from ..topologies.errors import TopologyError
from ..topologies.model import Endpoint, Host, Link, Switch, Topology

MAX_PORTS: Final = 254


def one_switch(ports: int) -> Topology:
    """Return one switch `s1`, whose ports 1 … `ports` lead to the hosts `h1` …, 10.0.0.1 …. Raises TopologyError."""
    if not 1 <= ports <= MAX_PORTS:
        raise TopologyError(f"a switch with {ports} ports; it has 1 … {MAX_PORTS} of them here", value=ports)
    numbers = range(1, ports + 1)
    return Topology(
        "one-switch",
        tuple(Host(f"h{number}", IPv4Address("10.0.0.0") + number) for number in numbers),
        (Switch("s1", 1),),
        tuple(Link(Endpoint(f"h{number}", 0), Endpoint("s1", number)) for number in numbers),
    )
