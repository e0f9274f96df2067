"""The YAML that a fabric is written in, validated key by key.

Spelled out::

    name: two-racks
    defaults: {rate: 1Gbit, delay: 2us, loss: 0, queue: 128, mtu: 1500, slots: 1024, target: bmv2}
    hosts:
      h1: {address: 10.0.1.1, mac: 02:00:0a:00:01:01}     # both optional: addresses follow the order
      h2:
    switches:
      s1: {device_id: 1, slots: 512, tier: leaf}          # all optional: ids follow the order
    links:
      - {ends: [h1, s1-p1], rate: 200Mbit, delay: 10us}
      - {ends: [h2, s1]}                                  # the next free port of s1

or generated::

    name: leaf-spine
    generate: {kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 3, rate: 1Gbit, delay: 2us}
    # or {kind: fat-tree, k: 4}, {kind: jellyfish, switches: 20, degree: 4, hosts_per_switch: 4, seed: 1},
    # {kind: random, switches: 12, links: 20, hosts_per_switch: 2, seed: 1}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from . import generators
from .errors import TopologyError, UnsoundFabric
from .exercise import is_exercise, read_exercise
from .file_keys import (
    DefaultsKeys,
    FabricKeys,
    FatTreeKeys,
    GeneratedKeys,
    HostKeys,
    JellyfishKeys,
    LinkKeys,
    RandomKeys,
)
from .key_errors import Location, dotted, problems_of
from .model import Endpoint, Host, Link, Switch, Topology
from .problems import BadFile, FileProblem, kind_of, listed
from .spelling import nearest
from .targets import Target
from .units import format_delay, format_memory, format_rate
from .yaml_file import YamlFile

_SHIPPED: Final = Path(__file__).parent
_WHAT: Final = "a fabric is a YAML mapping with name, and either generate or hosts, switches and links"


def shipped() -> list[str]:
    """Return the fabrics that come with Weir, by their files' names."""
    return sorted(path.name for path in _SHIPPED.glob("*.yaml"))


def load_topology(path: str | Path) -> Topology:
    """Read a fabric from a YAML file, or from the topology JSON of an exercise of the P4 tutorials.

    Args:
        path: The file; or the name of one that ships with Weir, such as leaf_spine.yaml.

    Raises:
        TopologyError: The fabric is invalid; names file, node or link, value and allowed values.
    """
    path = Path(path)
    if path.name == str(path) and not path.exists() and path.name in shipped():
        path = _SHIPPED / path.name
    if not path.exists():
        raise TopologyError(
            f"no such file{nearest(str(path), shipped())}; the fabrics that ship are {', '.join(shipped())}",
            place=str(path),
        )
    if is_exercise(path):
        return read_exercise(path).topology
    try:
        written = YamlFile.read(path, _WHAT)
    except BadFile as error:
        raise TopologyError(str(error)) from None
    return parse_topology(written.data, str(path), written)


def parse_topology(data: object, where: str, written: YamlFile | None = None, within: Location = ()) -> Topology:
    """Return the fabric that a mapping describes, in the form that YAML gives it.

    Args:
        data: Mapping with the keys of a fabric file, or with `generate`.
        where: Name that stands in front of errors, such as the file's path.
        written: File that the mapping was read from, for line numbers and doubled keys in errors; None: no file.
        within: Keys of the file under which the mapping stands.

    Raises:
        TopologyError: The mapping is no fabric; the error lists all problems.
    """

    def line(location: Location) -> int | None:
        return None if written is None else written.line((*within, *location))

    twice = () if written is None else written.problems
    if not isinstance(data, dict):
        raise TopologyError(f"{_WHAT}; this is {kind_of(data)}", place=where)
    model = GeneratedKeys if "generate" in data else FabricKeys
    try:
        keys = model.model_validate(data)
    except ValidationError as error:
        problems = problems_of(
            error,
            model,
            data,
            place=lambda location: _place(location, data),
            line=line,
        )
        raise TopologyError(listed(where, [*twice, *problems])) from None
    if twice:
        raise TopologyError(listed(where, twice))
    try:
        return _generate(keys) if isinstance(keys, GeneratedKeys) else _build(keys)
    except UnsoundFabric as error:
        raise TopologyError(listed(where, [FileProblem(text, line(place)) for place, text in error.problems])) from None
    except TopologyError as error:
        raise error.within(where) from error


def dump_topology(topology: Topology, path: str | Path) -> None:
    """Write a fabric as YAML, every node and link spelled out, so that `load_topology` gives an equal one.

    Args:
        topology: The fabric.
        path: File to write.

    Raises:
        TopologyError: The file cannot be written.
    """
    data = {
        "name": topology.name,
        "hosts": {host.name: _dumped_host(host) for host in topology.hosts},
        "switches": {switch.name: _dumped_switch(switch) for switch in topology.switches},
        "links": [_dumped_link(link) for link in topology.links],
    }
    try:
        text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise TopologyError(f"cannot be written: {error}", place=str(path)) from error


def _dumped_host(host: Host) -> dict[str, Any]:
    dumped: dict[str, Any] = {"address": str(host.address), "mac": host.mac}
    if host.accelerators != 1:
        dumped["accelerators"] = host.accelerators
    if host.memory_bytes:
        dumped["memory"] = format_memory(host.memory_bytes)
    return dumped


def _dumped_switch(switch: Switch) -> dict[str, Any]:
    data: dict[str, Any] = {"device_id": switch.device_id, "slots": switch.slots, "target": switch.target.name}
    return data if switch.tier is None else {**data, "tier": switch.tier}


def _dumped_link(link: Link) -> dict[str, Any]:
    return {
        "ends": [end.node if end.port == 0 else str(end) for end in link.ends],
        "rate": format_rate(link.rate_bps),
        "delay": format_delay(link.delay_ns),
        "loss": link.loss,
        "queue": link.queue_packets,
        "mtu": link.mtu,
    }


def _generate(data: GeneratedKeys) -> Topology:
    g = data.generate
    common = {
        "rate_bps": g.rate,
        "delay_ns": g.delay,
        "loss": g.loss,
        "queue_packets": g.queue,
        "mtu": g.mtu,
        "slots": g.slots,
        "target": g.target,
        "name": data.name,
    }
    try:
        if isinstance(g, FatTreeKeys):
            return generators.fat_tree(g.k, **common)  # type: ignore[arg-type]
        if isinstance(g, JellyfishKeys):
            return generators.jellyfish(g.switches, g.degree, g.hosts_per_switch, seed=g.seed, **common)  # type: ignore[arg-type]
        if isinstance(g, RandomKeys):
            return generators.random_fabric(g.switches, g.links, g.hosts_per_switch, seed=g.seed, **common)  # type: ignore[arg-type]
        return generators.leaf_spine(
            g.leaves,
            g.spines,
            g.hosts_per_leaf,
            uplink_rate_bps=g.uplink_rate,
            **common,  # type: ignore[arg-type]
        )
    except TopologyError as error:
        raise error.within("generate") from error


def _build(data: FabricKeys) -> Topology:
    """Raises UnsoundFabric."""
    hosts: list[Host] = []
    switches: list[Switch] = []
    links: list[Link] = []
    problems: list[tuple[Location, str]] = []
    for name, address, mac in _addresses(data.hosts):
        with _collected(problems, "hosts", name):
            keys = data.hosts[name] or HostKeys()
            hosts.append(Host(name, address, mac, keys.accelerators, keys.memory))
    for number, (name, switch) in enumerate(data.switches.items(), 1):
        with _collected(problems, "switches", name):
            switches.append(
                Switch(
                    name,
                    (switch.device_id if switch and switch.device_id is not None else number),
                    (switch.slots if switch and switch.slots is not None else data.defaults.slots),
                    switch.tier if switch else None,
                    (switch.target if switch and switch.target is not None else data.defaults.target),
                )
            )
    ports = _FreePorts({switch.name: switch.target for switch in switches}, data.links, data.defaults.rate)
    for index, link in enumerate(data.links):
        with _collected(problems, "links", index):
            links.append(_link(link, data.defaults, ports))
    if problems:
        raise UnsoundFabric(problems)
    return Topology(data.name, tuple(hosts), tuple(switches), tuple(links))


@contextmanager
def _collected(problems: list[tuple[Location, str]], *place: str | int) -> Iterator[None]:
    """Collect the problems of one object, so that the others are still checked."""
    try:
        yield
    except TopologyError as error:
        problems.append((place, str(error)))


def _addresses(hosts: dict[str, HostKeys | None]) -> Iterator[tuple[str, IPv4Address, str]]:
    """Every host's name, address and MAC."""
    taken = {host.address for host in hosts.values() if host and host.address}
    free = (IPv4Address(f"10.{x >> 8}.{x & 255}.{y}") for x in range(4096) for y in range(1, 255))
    for name, host in hosts.items():
        address = host.address if host and host.address else next((a for a in free if a not in taken), None)
        if address is None:
            raise TopologyError(
                "no address is left in 10.0.0.0/12; a fabric has at most 1040384 hosts", place=f"host {name}"
            )
        yield name, address, host.mac.lower() if host else ""


T = TypeVar("T")


def _chosen(value: T | None, default: T) -> T:
    return default if value is None else value


class _FreePorts:
    """Ports of switches for the links that name a switch alone: the lowest number that no link of the file takes."""

    def __init__(self, targets: Mapping[str, Target], links: Sequence[LinkKeys], default_rate: int) -> None:
        self._targets = targets
        self._taken: dict[str, set[int]] = {name: set() for name in targets}
        for link in links:
            for end in link.ends:
                if isinstance(end, Endpoint) and end.node in targets:
                    self._taken[end.node].update(self._channels(end, _chosen(link.rate, default_rate)))

    def numbered(self, end: Endpoint | str, rate_bps: int) -> Endpoint:
        """Return the end as it is, port 0 of a host, or the next free port of a switch. Raises TopologyError."""
        if isinstance(end, Endpoint):
            return end
        if end not in self._targets:
            return Endpoint(end, 0)
        taken = self._taken[end]
        for port in range(1, self._targets[end].last_port + 1):
            channels = self._channels(Endpoint(end, port), rate_bps)
            if channels and taken.isdisjoint(channels):
                taken.update(channels)
                return Endpoint(end, port)
        raise TopologyError(f"{end} has no free port for {format_rate(rate_bps)}; its links take all", value=end)

    def _channels(self, end: Endpoint, rate_bps: int) -> Sequence[int]:
        """Port numbers that a link would take; none where the switch has no such port."""
        target = self._targets[end.node]
        if target.refusal_of_port(end.port):
            return ()
        try:
            return target.channels(end.port, rate_bps)
        except TopologyError:
            return ()


def _link(keys: LinkKeys, defaults: DefaultsKeys, ports: _FreePorts) -> Link:
    rate = _chosen(keys.rate, defaults.rate)
    a, b = (ports.numbered(end, rate) for end in keys.ends)
    return Link(
        a,
        b,
        rate,
        _chosen(keys.delay, defaults.delay),
        _chosen(keys.loss, defaults.loss),
        _chosen(keys.queue, defaults.queue),
        _chosen(keys.mtu, defaults.mtu),
    )


# --- errors -----------------------------------------------------------------------------------------------------------


def _place(location: Location, data: dict[Any, Any]) -> str:
    """Place of an error, in a user's words."""
    match tuple(location):
        case ("hosts" | "switches" as section, name, *rest):
            return ": ".join([f"{'host' if section == 'hosts' else 'switch'} {name}", *_dotted(rest)])
        case ("links", int() as index, *rest):
            return ": ".join([f"link {_link_name(data['links'][index], index)}", *_dotted(rest)])
        case _:
            return dotted(location)


def _dotted(location: Location) -> list[str]:
    return [dotted(location)] if location else []


def _link_name(link: Any, index: int) -> str:
    """A link is called after its first numbered port, else after both ends; after its number where they are unread."""
    ends = link.get("ends") if isinstance(link, dict) else None
    if isinstance(ends, list) and ends and all(isinstance(end, str) for end in ends):
        name: str = next((end for end in ends if "-p" in end), f"[{', '.join(ends)}]")
        return name
    return str(index + 1)
