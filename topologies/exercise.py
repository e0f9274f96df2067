"""A fabric as p4lang/tutorials and p4-utils' users write it: one JSON file of hosts, switches and links.

::

    {"hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11",
                      "commands": ["route add default gw 10.0.1.10 dev eth0",
                                   "arp -i eth0 -s 10.0.1.10 08:00:00:00:01:00"]}, …},
     "switches": {"s1": {"runtime_json": "pod-topo/s1-runtime.json"}, …},
     "links": [["h1", "s1-p1"], ["s1-p3", "s3-p1", "5ms", 0.5]]}

A link's third word is its delay (`5ms`, or a number of milliseconds), the fourth its rate in Mbit/s. Files are named as
seen from the folder in which the exercise is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, Final

from .errors import TopologyError
from .model import Endpoint, Host, Link, Switch, Topology
from .runtime_json import RuntimeFile, read_json
from .spelling import nearest
from .units import parse_delay

_HOST_KEYS: Final = ("ip", "mac", "commands")
_SWITCH_KEYS: Final = ("runtime_json", "program", "cli_input")
_RATE_BPS: Final = 1_000_000_000
_DELAY_NS: Final = 0


@dataclass(frozen=True, slots=True)
class ExerciseHost:
    """A host whose address is in a network of its own choice, with commands for the rest."""

    prefix_length: int
    commands: Sequence[str] = ()
    """What its shell does when the fabric is there, such as routes and neighbours."""


@dataclass(frozen=True, slots=True)
class Exercise:
    topology: Topology
    hosts: Mapping[str, ExerciseHost]
    runtime: Mapping[str, RuntimeFile]
    """What switches are to hold, by their names; those without a file are missing."""
    programs: Mapping[str, Path]
    """Switches with BMv2 JSON of their own."""
    device_ids: Mapping[str, int]
    """P4Runtime's, which count from 0 there, in the file's order."""
    notes: Sequence[str]
    """What is in the file and is not done."""


def is_exercise(path: Path) -> bool:
    """Whether a fabric's file is one of these, by its name."""
    return path.suffix == ".json"


def read_exercise(path: Path) -> Exercise:
    """Raises TopologyError, which names the file, the node or link, and what would be right."""
    data = read_json(path)
    try:
        for key in ("hosts", "switches", "links"):
            if key not in data:
                raise TopologyError(f'key "{key}" is missing; there are hosts, switches and links')
        hosts = {name: _host(name, given) for name, given in data["hosts"].items()}
        switches = {name: _checked(name, given, _SWITCH_KEYS) for name, given in data["switches"].items()}
        topology = Topology(
            path.stem.replace(".", "-"),
            tuple(host for host, _ in hosts.values()),
            tuple(Switch(name, number) for number, name in enumerate(switches, 1)),
            tuple(_link(index, given, hosts) for index, given in enumerate(data["links"])),
        )
        return Exercise(
            topology,
            {name: setup for name, (_, setup) in hosts.items()},
            {
                name: RuntimeFile.read(_found(path, given["runtime_json"]))
                for name, given in switches.items()
                if "runtime_json" in given
            },
            {name: _found(path, given["program"]) for name, given in switches.items() if "program" in given},
            {name: number for number, name in enumerate(switches)},
            [
                f"{name}: {given['cli_input']} is left out, for it speaks to a Thrift server (simple_switch_CLI)"
                for name, given in switches.items()
                if "cli_input" in given
            ],
        )
    except TopologyError as error:
        raise error if str(error).startswith(str(path)) else error.within(str(path)) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise TopologyError(f"{path}: is not the topology of an exercise: {error}") from None


def _checked(name: str, given: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    for key in given:
        if key not in known:
            raise TopologyError(f'{name}: unknown key "{key}"{nearest(key, known)}; there are {", ".join(known)}')
    return given


def _host(name: str, given: Mapping[str, Any]) -> tuple[Host, ExerciseHost]:
    _checked(name, given, _HOST_KEYS)
    try:
        interface = IPv4Interface(str(given["ip"]))
    except KeyError:
        raise TopologyError(f'{name}: key "ip" is missing; write it like 10.0.1.1/24') from None
    except ValueError as error:
        raise TopologyError(f"{name}: ip: {error}; write it like 10.0.1.1/24") from None
    host = Host(name, interface.ip, str(given.get("mac", "")).lower())
    return host, ExerciseHost(interface.network.prefixlen, tuple(given.get("commands", [])))


def _link(index: int, given: Sequence[Any], hosts: Mapping[str, object]) -> Link:
    if not isinstance(given, list) or not 2 <= len(given) <= 4:
        raise TopologyError(
            f'links[{index}]: {given} is not two ports, a delay and a rate; write it like ["h1", "s1-p1"]'
        )
    ends = [Endpoint.parse(str(end)) for end in given[:2]]
    for end in ends:
        if end.node in hosts and end.port:
            raise TopologyError(f"links[{index}]: {end}: a host has one port; write {end.node}")
    delay_ns, rate_bps = _DELAY_NS, _RATE_BPS
    if len(given) > 2:
        delay_ns = parse_delay(f"{given[2]}ms" if isinstance(given[2], int | float) else given[2])
    if len(given) > 3:
        rate_bps = round(float(given[3]) * 1e6)
    return Link(ends[0], ends[1], rate_bps, delay_ns)


def _found(path: Path, name: str) -> Path:
    """As seen from here, or from the topology's folder or the one above it."""
    candidates = [Path(name), path.parent / name, path.parent.parent / name]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[0])
