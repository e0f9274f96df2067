"""Initial contents of one switch in the format of p4lang/tutorials: a JSON file of table entries, multicast groups and
clone sessions, by names.

::

    {"target": "bmv2", "p4info": "build/basic.p4info.txtpb", "bmv2_json": "build/basic.json",
     "table_entries": [
       {"table": "MyIngress.ipv4_lpm", "default_action": true, "action_name": "MyIngress.drop", "action_params": {}},
       {"table": "MyIngress.ipv4_lpm", "match": {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]},
        "action_name": "MyIngress.ipv4_forward", "action_params": {"dstAddr": "08:00:00:00:01:11", "port": 1}}],
     "multicast_group_entries": [{"multicast_group_id": 1, "replicas": [{"egress_port": 1, "instance": 1}]}],
     "clone_session_entries": [{"clone_session_id": 5, "replicas": [{"egress_port": 1, "instance": 1}]}]}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from .errors import TopologyError
from .problems import BadFile, any_value, by_name, keys, list_of, or_nothing, read_json, text_value, truth, whole_number

_VALUES: Final = or_nothing(by_name(any_value))
_REPLICAS: Final = list_of(keys({"egress_port": whole_number}, {"instance": whole_number}))
_SHAPE: Final = keys(
    {},
    {
        "target": text_value,
        "p4info": text_value,
        "bmv2_json": text_value,
        "table_entries": list_of(
            keys(
                {"table": text_value, "action_name": text_value},
                {"match": _VALUES, "action_params": _VALUES, "default_action": truth, "priority": whole_number},
            )
        ),
        "multicast_group_entries": list_of(keys({"multicast_group_id": whole_number}, {"replicas": _REPLICAS})),
        "clone_session_entries": list_of(
            keys({"clone_session_id": whole_number}, {"replicas": _REPLICAS, "packet_length_bytes": whole_number})
        ),
    },
)


@dataclass(frozen=True, slots=True)
class RuntimeRow:
    """A table entry, or with `default` a table's default action."""

    table: str
    match: Mapping[str, object]
    """A key field's value, or a list: [address, prefix length] (lpm), [value, mask] (ternary), [low, high] (range)."""
    action: str
    params: Mapping[str, object]
    priority: int
    default: bool


@dataclass(frozen=True, slots=True)
class RuntimeReplica:
    """Copy of a multicast group or clone session: egress port and replication id."""

    port: int
    instance: int


@dataclass(frozen=True, slots=True)
class RuntimeSession:
    """A clone session."""

    replicas: tuple[RuntimeReplica, ...]
    packet_length_bytes: int


@dataclass(frozen=True, slots=True)
class RuntimeFile:
    """A file's content."""

    path: Path
    program: Path | None
    """The BMv2 JSON that it names."""
    p4info: Path | None
    rows: tuple[RuntimeRow, ...]
    groups: Mapping[int, tuple[RuntimeReplica, ...]]
    sessions: Mapping[int, RuntimeSession]

    @classmethod
    def read(cls, path: Path) -> RuntimeFile:
        """Read a runtime file. Raises TopologyError, which names the file, the entry, and the allowed values."""
        try:
            data = read_json(path, "the runtime of a switch", _SHAPE)
        except BadFile as error:
            raise TopologyError(str(error)) from None
        return cls(
            path,
            named_file(path, data["bmv2_json"]) if "bmv2_json" in data else None,
            named_file(path, data["p4info"]) if "p4info" in data else None,
            tuple(_row(path, index, row) for index, row in enumerate(data.get("table_entries", []))),
            {number: _replicas(entry) for number, entry in _by_id(path, data, "multicast_group")},
            {
                number: RuntimeSession(_replicas(entry), entry.get("packet_length_bytes", 0))
                for number, entry in _by_id(path, data, "clone_session")
            },
        )


def _by_id(path: Path, data: Mapping[str, Any], kind: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """A file's multicast groups or clone sessions. Raises TopologyError for a number that is there twice."""
    seen: dict[int, int] = {}
    for index, entry in enumerate(data.get(f"{kind}_entries", [])):
        number = entry[f"{kind}_id"]
        if number in seen:
            first = f"{kind}_entries[{seen[number]}]"
            raise TopologyError(
                f"{kind}_entries[{index}]: {kind}_id {number} is that of {first} as well; give each its own",
                place=str(path),
                value=kind,
            )
        seen[number] = index
        yield number, entry


def value_number(value: object) -> int:
    """Return the number that a value of a key field or parameter stands for: an integer, or text such as `0x1f`,
    `10.0.1.1`, `fe80::1` or `08:00:00:00:01:11`. Raises ValueError.
    """
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if text.count(":") == 5 and all(len(part) == 2 for part in text.split(":")):
            return int(text.replace(":", ""), 16)
        with suppress(ValueError):
            return int(text, 0)
        with suppress(ValueError):
            return int(ip_address(text))
    raise ValueError(
        f"{value!r} is neither a number nor an address; write it like 7, 0x1f, 10.0.1.1, 08:00:00:00:01:11"
    )


def _row(path: Path, index: int, row: Mapping[str, Any]) -> RuntimeRow:
    """Convert a table entry. Raises TopologyError for a default action with a match, which would be lost."""
    if row.get("default_action") and row.get("match"):
        raise TopologyError(
            f"table_entries[{index}]: a default action has no match; remove match, or default_action",
            place=str(path),
            value=row["match"],
        )
    return RuntimeRow(
        row["table"],
        row.get("match") or {},
        row["action_name"],
        row.get("action_params") or {},
        row.get("priority", 0),
        row.get("default_action", False),
    )


def _replicas(entry: Mapping[str, Any]) -> tuple[RuntimeReplica, ...]:
    return tuple(
        RuntimeReplica(replica["egress_port"], replica.get("instance", 0)) for replica in entry.get("replicas", [])
    )


def named_file(path: Path, name: str) -> Path:
    """Find a file that another one names: seen from the current folder, where exercises are run, from that file's
    folder, or from the one above it.

    Args:
        path: The file that has the name in it.
        name: The name.

    Returns:
        The first that exists; if none does, the one seen from the current folder.
    """
    folder = path.absolute().parent
    candidates = [Path(name), path.parent / name, folder.parent / name]
    # unlike Path.exists, it answers for a name that is too long
    return next((candidate for candidate in candidates if os.path.exists(candidate)), candidates[0])
