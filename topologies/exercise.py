"""A fabric as p4lang/tutorials and p4-utils' users write it: one JSON file of hosts, switches and links.

::

    {"hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11",
                      "commands": ["route add default gw 10.0.1.10 dev eth0",
                                   "arp -i eth0 -s 10.0.1.10 08:00:00:00:01:00"]}, …},
     "switches": {"s1": {"runtime_json": "pod-topo/s1-runtime.json"}, …},
     "links": [["h1", "s1-p1"], ["s1-p3", "s3-p1", "5ms", 0.5]]}

A link's third word is its delay, the fourth its rate in Mbit/s. A delay is text such as `5ms`, text without a unit
(microseconds, as netem has it) or a number of milliseconds. Files are named as seen from the folder in which the
exercise is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, Final

from .errors import TopologyError
from .model import Endpoint, Host, Link, Switch, Topology
from .problems import BadFile, FileProblem, any_value, by_name, keys, list_of, listed, read_json, text_value, wrong
from .runtime_json import RuntimeFile, named_file
from .targets import BMV2
from .units import parse_delay

_SHAPE: Final = keys(
    {
        "hosts": by_name(keys({"ip": text_value}, {"mac": text_value, "commands": list_of(text_value)})),
        "switches": by_name(
            keys(
                {},
                {
                    "runtime_json": text_value,
                    "program": text_value,
                    "cli_input": text_value,
                    "cpu_port": any_value,
                    "priority_queues": any_value,
                },
            )
        ),
        "links": list_of(list_of(any_value)),
    },
    {},
)
_QUEUES: Final = 8
"""Priority queues of every port."""
_RATE_BPS: Final = 1_000_000_000
_DELAY_NS: Final = 0
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ExerciseHost:
    """A host whose address is in a network of its own choice, with commands for the rest."""

    prefix_length: int
    commands: Sequence[str] = ()
    """Shell commands to run when the fabric is up, such as routes and neighbours."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """Fabric and switch contents of one exercise of the P4 tutorials."""

    topology: Topology
    hosts: Mapping[str, ExerciseHost]
    runtime: Mapping[str, RuntimeFile]
    """Initial contents of switches, by name; switches without a file are missing."""
    programs: Mapping[str, Path]
    """Switches with BMv2 JSON of their own."""
    device_ids: Mapping[str, int]
    """P4Runtime's, which count from 0 there, in the file's order."""
    notes: Sequence[str]
    """Parts of the file that are not supported."""


def is_exercise(path: Path) -> bool:
    """Return True if a fabric's file is an exercise, by its name."""
    return path.suffix == ".json"


def read_exercise(path: Path) -> Exercise:
    """Read an exercise. Raises TopologyError, which names the file, the node or link, and the allowed values."""
    try:
        data = read_json(path, "the topology of an exercise", _shape)
    except BadFile as error:
        raise TopologyError(str(error)) from None
    problems: list[FileProblem] = []
    hosts: dict[str, tuple[Host, ExerciseHost]] = {}
    for name, entry in data["hosts"].items():
        try:
            hosts[name] = _host(name, entry)
        except TopologyError as error:
            problems.append(FileProblem(str(error)))
    links: list[Link] = []
    switches: dict[str, Switch] = {}
    for number, (name, entry) in enumerate(data["switches"].items(), 1):
        try:
            switches[name] = _switch(name, number, entry)
        except TopologyError as error:
            problems.append(FileProblem(str(error)))
    for index, ends in enumerate(data["links"]):
        try:
            links.append(_link(index, ends, data["hosts"]))
        except TopologyError as error:
            problems.append(FileProblem(str(error)))
    if problems:
        raise TopologyError(listed(str(path), problems))
    try:
        topology = Topology(
            path.stem.replace(".", "-"),
            tuple(host for host, _ in hosts.values()),
            tuple(switches.values()),
            tuple(links),
        )
    except TopologyError as error:
        raise error.within(str(path)) from None
    return Exercise(
        topology,
        {name: setup for name, (_, setup) in hosts.items()},
        {
            name: RuntimeFile.read(named_file(path, entry["runtime_json"]))
            for name, entry in data["switches"].items()
            if "runtime_json" in entry
        },
        {name: named_file(path, entry["program"]) for name, entry in data["switches"].items() if "program" in entry},
        {name: number for number, name in enumerate(switches)},
        [note for name, entry in data["switches"].items() for note in _notes(name, entry)],
    )


def _shape(data: object, place: str) -> Iterator[str]:
    """Complaints about the file's form; one alone about a file of p4-utils, which names its parts otherwise."""
    if isinstance(data, dict) and "topology" in data and "links" not in data:
        yield ("this is p4-utils' p4app.json; write hosts (with ip), switches and links (with ports: s1-p1) at the top")
    else:
        yield from _SHAPE(data, place)


def _switch(name: str, number: int, entry: Mapping[str, Any]) -> Switch:
    place = f"switches.{name}"
    port = _whole(entry.get("cpu_port", BMV2.cpu_port))
    if port is None or port >= BMV2.drop_port:
        allowed = f"a number from 0 to {BMV2.drop_port - 1}"
        raise TopologyError(wrong("cpu_port", entry["cpu_port"], allowed), place=place)
    if "priority_queues" in entry and _whole(entry["priority_queues"]) is None:
        raise TopologyError(wrong("priority_queues", entry["priority_queues"], "a number, like 8"), place=place)
    try:
        return Switch(name, number, target=replace(BMV2, cpu_port=port))
    except TopologyError as error:
        raise error.within("switches") from None


def _whole(value: object) -> int | None:
    """The number that a value is, or is the text of; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        with suppress(ValueError):  # of more digits than Python reads
            return int(value)
    return None


def _notes(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    if "cli_input" in entry:
        yield f"{name}: {entry['cli_input']} is left out, for it speaks to a Thrift server (simple_switch_CLI)"
    if _whole(entry.get("priority_queues", _QUEUES)) != _QUEUES:
        yield f"{name}: priority_queues {entry['priority_queues']} is left out; every port has {_QUEUES}"


def _host(name: str, entry: Mapping[str, Any]) -> tuple[Host, ExerciseHost]:
    try:
        interface = IPv4Interface(entry["ip"])
    except ValueError:
        raise TopologyError(
            f'ip "{entry["ip"]}" is no address; write it like 10.0.1.1/24', place=f"hosts.{name}", value=entry["ip"]
        ) from None
    try:
        host = Host(name, interface.ip, entry.get("mac", "").lower())
    except TopologyError as error:
        raise error.within(f"hosts.{name}") from None
    return host, ExerciseHost(interface.network.prefixlen, tuple(entry.get("commands", [])))


def _link(index: int, entry: Sequence[Any], hosts: Mapping[str, object]) -> Link:
    where = f"links[{index}]"
    if not 2 <= len(entry) <= 4 or not all(isinstance(end, str) for end in entry[:2]):
        raise TopologyError(
            f'{entry} is not two ports, a delay and a rate; write it like ["h1", "s1-p1"]', place=where, value=entry
        )
    try:
        ends = [Endpoint.parse(end) for end in entry[:2]]
        delay_ns = _DELAY_NS
        if len(entry) > 2:
            delay_ns = _delay_ns(entry[2])
    except TopologyError as error:
        raise error.within(where) from None
    for end in ends:
        if end.node in hosts and end.port:
            raise TopologyError(f"{end}: a host has one port; write {end.node}", place=where, value=end)
    rate_bps = _RATE_BPS
    if len(entry) > 3:
        if isinstance(entry[3], bool) or not isinstance(entry[3], int | float) or not 1e-6 <= entry[3] <= 1e9:
            raise TopologyError(f"{wrong('rate', entry[3], 'it in Mbit/s, like 0.5')}", place=where)
        rate_bps = round(entry[3] * 1e6)
    try:
        return Link(ends[0], ends[1], rate_bps, delay_ns)
    except TopologyError as error:
        raise error.within(where) from None


def _delay_ns(value: object) -> int:
    if isinstance(value, int | float):
        return parse_delay(f"{value}ms")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return parse_delay(f"{value.strip()}us")
    return parse_delay(value)
