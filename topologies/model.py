"""A fabric as data: hosts, switches, the links between their ports.

A `Topology` that exists is sound: its constructor refuses duplicate names, ports, addresses and device ids, links to
nowhere, hosts that do not hang on exactly one switch, and a fabric in pieces. It never changes: a changed
fabric is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..imports.extras import explained
from .errors import TopologyError, UnsoundFabric
from .targets import BMV2, Target

if TYPE_CHECKING:
    import networkx

HOST_NETWORK: Final = IPv4Network("10.0.0.0/12")
LAST_DEVICE_ID: Final = 65_534
"""The loopback of device d is 10.255.(d >> 8).(d & 255); the last address of that network is its broadcast."""
LARGEST_QUEUE_PACKETS: Final = 2**19 - 1
"""v1model's queue depths have 19 bits."""
MIN_MTU: Final = 1500
"""Minimum MTU of every link: hosts' packets always fit."""
LARGEST_MTU: Final = 9216
LARGEST_DELAY_NS: Final = 3_600_000_000_000

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,9}")
_ENDPOINT: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,9})-p(\d{1,3})")

NAME_PATTERN: Final = f"^{_NAME.pattern}$"
"""Pattern of the names of hosts and switches."""
ENDPOINT_PATTERN: Final = f"^({_ENDPOINT.pattern}|{_NAME.pattern})$"
"""Pattern of the texts that `Endpoint.parse` accepts."""


def mac_of(address: IPv4Address) -> str:
    """Return the locally administered MAC that the fabric gives to an address: 02:00, then the address."""
    return ":".join(f"{byte:02x}" for byte in b"\x02\x00" + address.packed)


def mac_number(mac: str) -> int:
    """Return a MAC in colon notation as a 48-bit integer."""
    return int(mac.replace(":", ""), 16)


class Endpoint(NamedTuple):
    """A port of a node: `s1-p3`. As a directed link it means what leaves the node through that port."""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}-p{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse `s1-p3`, or `h1` for a host's only port 0. Raises `TopologyError`."""
        if match := _ENDPOINT.fullmatch(text):
            return cls(match[1], int(match[2]))
        if _NAME.fullmatch(text):
            return cls(text, 0)
        raise TopologyError(f'endpoint "{text}" is not a port; write it like s1-p3, or h1 for a host', value=text)


@dataclass(frozen=True, slots=True)
class Host:
    """A worker's or server's machine; its one port is 0."""

    name: str
    address: IPv4Address
    """An address in 10.0.0.0/12."""
    mac: str = ""
    """`02:00:…` of the address where none is given."""
    accelerators: int = 1
    """Accelerators for workers of all jobs; a job that names no hosts is placed by them."""
    memory_bytes: int = 0
    """Memory for workers of all jobs; 0: a job that needs memory is not placed here."""

    def __post_init__(self) -> None:
        _check_name("host", self.name)
        if self.address not in HOST_NETWORK or self.address in (
            HOST_NETWORK.network_address,
            HOST_NETWORK.broadcast_address,
        ):
            raise TopologyError(
                f"address {self.address} is not a host's in {HOST_NETWORK}; write it like 10.0.1.1",
                place=f"host {self.name}",
                value=self.address,
            )
        for name in ("accelerators", "memory_bytes"):
            if (value := getattr(self, name)) < 0:
                raise TopologyError(f"{name} {value} is negative", place=f"host {self.name}", value=value)
        if not self.mac:
            object.__setattr__(self, "mac", mac_of(self.address))
        elif not re.fullmatch(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", self.mac):
            raise TopologyError(
                f'mac "{self.mac}" is not a unicast MAC; write it like {mac_of(self.address)}',
                place=f"host {self.name}",
                value=self.mac,
            )


@dataclass(frozen=True, slots=True)
class Switch:
    """A P4 switch. Its target says what its ports may be."""

    name: str
    device_id: int
    """P4Runtime's device id, and the node id in telemetry; 1…65534."""
    slots: int = BMV2.slots
    """Aggregation slots in the switch's registers, shared by all jobs."""
    tier: str | None = None
    """Name of the layer given by the generator: leaf, spine, edge, aggregation, core."""
    target: Target = BMV2
    """The kind of switch."""

    def __post_init__(self) -> None:
        _check_name("switch", self.name)
        if not 1 <= self.device_id <= LAST_DEVICE_ID:
            raise TopologyError(
                f"device_id {self.device_id} is not in 1…{LAST_DEVICE_ID}",
                place=f"switch {self.name}",
                value=self.device_id,
            )
        if self.slots < 0:
            raise TopologyError(
                f"slots {self.slots} is negative; 0 means that it never aggregates",
                place=f"switch {self.name}",
                value=self.slots,
            )
        if self.slots > self.target.slots:
            raise TopologyError(
                f"slots {self.slots} is more than {self.target.name} has; its program has {self.target.slots}",
                place=f"switch {self.name}",
                value=self.slots,
            )

    @property
    def address(self) -> IPv4Address:
        """The loopback that contributions are sent to."""
        return IPv4Address("10.255.0.0") + self.device_id

    @property
    def mac(self) -> str:
        """MAC address, from the IPv4 address."""
        return mac_of(self.address)


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link; rate, delay, loss, queue and MTU hold for each direction."""

    a: Endpoint
    b: Endpoint
    rate_bps: int = 1_000_000_000
    delay_ns: int = 2_000
    """Propagation delay, one way."""
    loss: float = 0.0
    """Probability that a frame is lost, in [0, 1)."""
    queue_packets: int = 128
    """Depth of the egress queue at either end."""
    mtu: int = MIN_MTU
    """Largest IPv4 packet of the link in bytes; the part beyond hosts' 1500 is for switches' telemetry."""

    def __post_init__(self) -> None:
        if self.a.node == self.b.node:
            raise TopologyError(
                f"links {self.a.node} to itself; a link joins two nodes", place=str(self), value=self.a.node
            )
        if self.rate_bps < 1:
            raise TopologyError(
                f"rate_bps {self.rate_bps} is not a rate; it must be at least 1 bit/s",
                place=str(self),
                value=self.rate_bps,
            )
        if self.delay_ns < 0:
            raise TopologyError(
                f"delay_ns {self.delay_ns} is negative; 0 is the least", place=str(self), value=self.delay_ns
            )
        if self.delay_ns > LARGEST_DELAY_NS:
            raise TopologyError(
                f"delay_ns {self.delay_ns} is more than an hour, {LARGEST_DELAY_NS}",
                place=str(self),
                value=self.delay_ns,
            )
        if not 0 <= self.loss < 1:
            raise TopologyError(
                f"loss {self.loss} is not a probability in [0, 1); write it like 0.01", place=str(self), value=self.loss
            )
        if not 1 <= self.queue_packets <= LARGEST_QUEUE_PACKETS:
            raise TopologyError(
                f"queue {self.queue_packets} is not in 1…{LARGEST_QUEUE_PACKETS} packets",
                place=str(self),
                value=self.queue_packets,
            )
        if not MIN_MTU <= self.mtu <= LARGEST_MTU:
            raise TopologyError(
                f"mtu {self.mtu} is not in {MIN_MTU}…{LARGEST_MTU} bytes", place=str(self), value=self.mtu
            )

    def __str__(self) -> str:
        end = self.b if self.a.port == 0 else self.a
        return f"link {end if end.port else end.node}"

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        """Both ends, `a` first."""
        return self.a, self.b


Node = Host | Switch
_Problem = tuple[Sequence[str | int], str]
"""A problem of a fabric: its place by the file's keys, and a sentence."""


@dataclass(frozen=True)
class Topology:
    """A fabric of hosts, switches and links. Sequences keep the order in which they were passed.

    Raises:
        UnsoundFabric: Names, addresses, device ids or ports clash, or a link's end does not exist.
    """

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    _link_at: Mapping[Endpoint, Link] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        link_at: dict[Endpoint, Link] = {}
        object.__setattr__(self, "_link_at", link_at)
        problems = [
            *_duplicates("name", ((node, node.name) for node in self.nodes)),
            *_duplicates("address", ((node, str(node.address)) for node in self.nodes)),
            *_duplicates("mac", ((node, node.mac) for node in self.nodes)),
            *_duplicates("device_id", ((switch, switch.device_id) for switch in self.switches)),
            *self._misplaced(link_at),
        ]
        if problems or (problems := list(self._unconnected())):
            raise UnsoundFabric(problems)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Hosts, then switches."""
        return *self.hosts, *self.switches

    def node(self, name: str) -> Node:
        """Return the host or switch of a name. Raises TopologyError if there is none."""
        match = self._hosts.get(name) or self._switches.get(name)
        if match is None:
            raise TopologyError(
                f'no node "{name}"; there are {_listed(n.name for n in self.nodes)}', place=self.name, value=name
            )
        return match

    def host(self, name: str) -> Host:
        """Return the host of a name. Raises TopologyError if there is none."""
        if name not in self._hosts:
            raise TopologyError(f'no host "{name}"; there are {_listed(self._hosts)}', place=self.name, value=name)
        return self._hosts[name]

    def switch(self, name: str) -> Switch:
        """Return the switch of a name. Raises TopologyError if there is none."""
        if name not in self._switches:
            raise TopologyError(f'no switch "{name}"; there are {_listed(self._switches)}', place=self.name, value=name)
        return self._switches[name]

    def is_host(self, name: str) -> bool:
        """True if a host has this name; False for switches and unknown names."""
        return name in self._hosts

    def is_switch(self, name: str) -> bool:
        """True if a switch has this name; False for hosts and unknown names."""
        return name in self._switches

    def link_at(self, endpoint: Endpoint) -> Link:
        """Return the link of a port. Raises TopologyError if the port has none."""
        if endpoint not in self._link_at:
            raise TopologyError(f"nothing is linked to port {endpoint}", place=self.name, value=str(endpoint))
        return self._link_at[endpoint]

    def peer(self, endpoint: Endpoint) -> Endpoint:
        """Return the other end of a port's link. Raises TopologyError if the port has none."""
        link = self.link_at(endpoint)
        return link.b if link.a == endpoint else link.a

    def neighbours(self, node: str) -> Mapping[int, Endpoint]:
        """Return the far end of each linked port of a node, by port number in ascending order."""
        self.node(node)
        return self._neighbours[node]

    def attached_switch(self, host: str) -> Switch:
        """Return the switch that a host's only link leads to."""
        return self._attached[self.host(host).name]

    @cached_property
    def _attached(self) -> Mapping[str, Switch]:
        return {name: self._switches[self.peer(Endpoint(name, 0)).node] for name in self._hosts}

    @cached_property
    def directed_links(self) -> tuple[Endpoint, ...]:
        """Every port with a link, as the direction that leaves through it."""
        return tuple(end for link in self.links for end in link.ends)

    @cached_property
    def mtu_between_switches(self) -> int:
        """Largest IP packet in bytes that every link between two switches takes; LARGEST_MTU without such links."""
        between = (link.mtu for link in self.links if all(self.is_switch(end.node) for end in link.ends))
        return min(between, default=LARGEST_MTU)

    @cached_property
    def graph(self) -> networkx.Graph:
        """Nodes with attribute `node` (Host or Switch); edges with `links`, a tuple (parallel links share one edge)."""
        graph = networkx_module().Graph(name=self.name)
        for node in self.nodes:
            graph.add_node(node.name, node=node)
        for link in self.links:
            already = graph.get_edge_data(link.a.node, link.b.node, {"links": ()})["links"]
            graph.add_edge(link.a.node, link.b.node, links=(*already, link))
        return graph

    @cached_property
    def _hosts(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def _switches(self) -> dict[str, Switch]:
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def _neighbours(self) -> dict[str, dict[int, Endpoint]]:
        neighbours: dict[str, dict[int, Endpoint]] = {node.name: {} for node in self.nodes}
        for end in sorted(self.directed_links):
            neighbours[end.node][end.port] = self.peer(end)
        return neighbours

    def _misplaced(self, link_at: dict[Endpoint, Link]) -> Iterator[_Problem]:
        """Links that cannot be where they are said to be; the others' ports are put into `link_at`."""
        channels: dict[Endpoint, Link] = {}
        for index, link in enumerate(self.links):
            place = ("links", index)
            for end in link.ends:
                if why := self._refusal_of_end(end):
                    yield place, f"{link}: {why}"
                    continue
                if end in link_at:
                    yield place, f"{link}: port {end} is taken already; give every link its own port"
                    continue
                link_at[end] = link
                try:
                    taken = list(self._channels(link, end))
                except TopologyError as error:
                    yield place, str(error)
                    continue
                for channel in taken:
                    if (other := channels.setdefault(channel, link)) is not link:
                        yield (
                            place,
                            f"{link}: port {end} would share channel {channel.port} of {end.node} with {other}; a port "
                            "faster than one channel takes those behind it as well",
                        )
                        break
            if all(end.node in self._hosts for end in link.ends):
                yield place, f"{link}: joins two hosts, {link.a.node} and {link.b.node}; a host hangs on a switch"

    def _refusal_of_end(self, end: Endpoint) -> str | None:
        """Reason why a link cannot end there."""
        if end.node in self._switches:
            why = self.switch(end.node).target.refusal_of_port(end.port)
            return f"port {end}: {why}" if why else None
        if end.node in self._hosts:
            return f"port {end}: a host has one port, 0; write {end.node}" if end.port else None
        return f'no node "{end.node}"; there are {_listed(node.name for node in self.nodes)}'

    def _channels(self, link: Link, end: Endpoint) -> Iterable[Endpoint]:
        """Ports of its node that a link's end occupies."""
        if end.node in self._hosts:
            return (end,)
        try:
            numbers = self.switch(end.node).target.channels(end.port, link.rate_bps)
        except TopologyError as error:
            raise TopologyError(f"port {end}: {error}", place=str(link), value=str(end)) from error
        return (Endpoint(end.node, number) for number in numbers)

    def _unconnected(self) -> Iterator[_Problem]:
        """Reasons why the fabric is not connected."""
        if not self.switches:
            yield (), f"{self.name}: no switches; a fabric has at least one"
            return
        alone = [node for node in self.nodes if not self._neighbours[node.name]]
        for node in alone:
            yield _place(node), f"{_kind(node)} {node.name}: has no link; every node needs one"
        pieces = self._pieces()
        if len(pieces) > 1 and not alone:
            yield (
                (),
                f"{self.name}: the fabric is in {len(pieces)} pieces; {_listed(sorted(pieces[1]))} cannot reach "
                f"{_listed(sorted(pieces[0]))}; link them",
            )

    def _pieces(self) -> list[set[str]]:
        """The nodes that reach each other, the largest piece first."""
        pieces: list[set[str]] = []
        left = {node.name for node in self.nodes}
        while left:
            piece, edge = set(), [next(node.name for node in self.nodes if node.name in left)]
            while edge:
                piece.add(name := edge.pop())
                left.discard(name)
                edge += [far.node for far in self._neighbours[name].values() if far.node in left]
            pieces.append(piece)
        return sorted(pieces, key=len, reverse=True)


def networkx_module() -> Any:
    """Slow to import, and nothing that only asks for names and options of this package needs it."""
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise explained(error, "a fabric's graph") from error
    return networkx


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise TopologyError(
            f"a name is a letter, then at most 9 letters, digits or _; write it like {kind[0]}1",
            place=f'{kind} "{name}"',
            value=name,
        )


def _duplicates(kind: str, values: Iterable[tuple[Node, object]]) -> Iterator[_Problem]:
    seen: dict[object, str] = {}
    for node, value in values:
        if value not in seen:
            seen[value] = node.name
        elif kind == "name":
            yield _place(node), f'two nodes are called "{value}"; give every node its own name'
        else:
            yield _place(node), f"{kind} {value} is both {seen[value]}'s and {node.name}'s; give every node its own"


def _place(node: Node) -> tuple[str, str]:
    return ("hosts" if isinstance(node, Host) else "switches"), node.name


def _kind(node: Node) -> str:
    return "host" if isinstance(node, Host) else "switch"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f" … ({len(listed)} in all)" if len(listed) > 8 else "")
