"""What one switch is to hold, as p4lang/tutorials write it: a JSON file of table entries, multicast groups and clone
sessions, by names.

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

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from .errors import TopologyError
from .spelling import nearest

_KEYS: Final = ("target", "p4info", "bmv2_json", "table_entries", "multicast_group_entries", "clone_session_entries")
_ROW_KEYS: Final = ("table", "match", "action_name", "action_params", "default_action", "priority")


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
        """Raises TopologyError, which names the file, the entry, and what would be right."""
        data = read_json(path)
        try:
            _check_keys("", data, _KEYS)
            return cls(
                path,
                _named_file(path, data.get("bmv2_json")),
                _named_file(path, data.get("p4info")),
                tuple(_row(index, row) for index, row in enumerate(data.get("table_entries", []))),
                {
                    _number(entry, "multicast_group_id"): _replicas(entry)
                    for entry in data.get("multicast_group_entries", [])
                },
                {
                    _number(entry, "clone_session_id"): RuntimeSession(
                        _replicas(entry), int(entry.get("packet_length_bytes", 0))
                    )
                    for entry in data.get("clone_session_entries", [])
                },
            )
        except TopologyError as error:
            raise error.within(str(path)) from None
        except (AttributeError, TypeError, ValueError) as error:
            raise TopologyError(f"{path}: is not the runtime JSON of a switch: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises TopologyError; also where a key is there twice."""
    try:
        data = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TopologyError(f"{path}: is not JSON: {error}") from None
    except TopologyError as error:
        raise error.within(str(path)) from None
    if not isinstance(data, dict):
        raise TopologyError(f"{path}: is a JSON {type(data).__name__}, not an object with keys")
    return data


def value_number(value: object) -> int:
    """The number that a value of a key field or parameter stands for: an integer, or text such as `0x1f`, `10.0.1.1`,
    `fe80::1` or `08:00:00:00:01:11`. Raises ValueError.
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


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise TopologyError(f'key "{key}" is there twice in one object')
    return dict(pairs)


def _check_keys(where: str, data: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in data:
        if key not in known:
            raise TopologyError(f'{where}unknown key "{key}"{nearest(key, known)}; there are {", ".join(known)}')


def _row(index: int, row: Mapping[str, Any]) -> RuntimeRow:
    where = f"table_entries[{index}]: "
    _check_keys(where, row, _ROW_KEYS)
    for key in ("table", "action_name"):
        if not isinstance(row.get(key), str):
            raise TopologyError(f'{where}"{key}" is missing, or no text')
    match, params = row.get("match") or {}, row.get("action_params") or {}
    if not isinstance(match, dict) or not isinstance(params, dict):
        raise TopologyError(f'{where}"match" and "action_params" are objects, by the names of fields and parameters')
    return RuntimeRow(
        row["table"], match, row["action_name"], params, int(row.get("priority", 0)), bool(row.get("default_action"))
    )


def _number(entry: Mapping[str, Any], key: str) -> int:
    if key not in entry:
        raise TopologyError(f'an entry of {key.removesuffix("_id")}_entries has no "{key}"')
    return int(entry[key])


def _replicas(entry: Mapping[str, Any]) -> tuple[RuntimeReplica, ...]:
    return tuple(
        RuntimeReplica(_number(replica, "egress_port"), int(replica.get("instance", 0)))
        for replica in entry.get("replicas", [])
    )


def _named_file(path: Path, name: object) -> Path | None:
    """A file that another names: as seen from here, where exercises are run, or from that file's folder or the one
    above it.
    """
    if name is None:
        return None
    candidates = [Path(str(name)), *(folder / str(name) for folder in (path.parent, path.parent.parent))]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[0])
