"""The nodes of a fabric: its switches and hosts by name, and where their ports lie in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from .entries import EmulatorError
from .switch import Switch

Endpoint = tuple[str, int]
"""A node's name and the number of one of its ports."""


class FabricError(EmulatorError):
    """A fabric was asked for a node, link, rate or instant that it cannot have."""


def label(end: Endpoint) -> str:
    """Return a port's name in errors: `s1-p3`."""
    return f"{end[0]}-p{end[1]}"


@dataclass(frozen=True, slots=True)
class HostNode:
    """A host, which is nothing but its NICs here."""

    index: int
    """Its place among the engine's hosts."""
    ports: dict[int, int]
    """Index of each NIC among the engine's ports, by the NIC's number."""


@dataclass(slots=True)
class FabricNodes:
    """Every node's name is taken once."""

    switches: dict[str, Switch] = field(default_factory=dict)
    hosts: dict[str, HostNode] = field(default_factory=dict)

    def check_new(self, name: str) -> None:
        """Check that a name is free.

        Raises:
            FabricError: It is taken.
        """
        if name in self.switches or name in self.hosts:
            raise FabricError(f"the name {name} is taken already", value=name)

    def host(self, name: str) -> HostNode:
        """Return a host by its name.

        Raises:
            FabricError: There is no such host.
        """
        if name not in self.hosts:
            known = ", ".join(sorted([*self.hosts, *self.switches])) or "none"
            raise FabricError(f"no host {name}; its nodes: {known}", place="fabric", value=name)
        return self.hosts[name]

    def port(self, end: Endpoint) -> int:
        """Return a port's place among the engine's. Raises FabricError, or SwitchValueError, where there is no such
        port.
        """
        name, number = end
        if name in self.switches:
            return self.switches[name].port_index(number)
        host = self.host(name)
        if number not in host.ports:
            raise FabricError(f"has no port {number}: add a link to it first", place=f"host {name}", value=number)
        return host.ports[number]
