"""Roles: the part of a program that a group of controllers may use (specification, "Role Config").

The specification leaves open how a role is defined. Two ways are supported, both in use by other switches:

* `Role.config` may be a `stratum.P4RoleConfig`: ids of P4Info that only this role or also other ones may write,
  whether it may set the pipeline config, and which packet-ins it gets. Objects that no role owns in P4Info (multicast
  groups, clone sessions) are open to all. Without a config a role may use all objects that no other role owns.
* The annotation `@p4runtime_role("name")` in the P4 source gives an object to one role.

The default role, the empty name, has no config and may do everything. A role cannot read objects it may not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from finsy.proto import p4i, p4r, stratum
from google.protobuf.message import DecodeError

from .refusal import Code, Refusal, invalid

MAX_ROLES: Final = 64
"""The most roles of one device; their highest election ids are remembered for ever."""

_Config = stratum.P4RoleConfig
_ANNOTATION: Final = re.compile(r'@p4runtime_role\s*\(\s*"([^"]*)"\s*\)')
_ID_FIELDS: Final = {
    "table_entry": "table_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "counter_entry": "counter_id",
    "meter_entry": "meter_id",
    "register_entry": "register_id",
    "digest_entry": "digest_id",
    "value_set_entry": "value_set_id",
    "extern_entry": "extern_id",
}


class Roles:
    """The roles of one device, as their primaries have configured them. May be asked on any thread."""

    def __init__(self) -> None:
        self._configs: dict[str, _Config | None] = {"": None}

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def config(self, name: str) -> _Config | None:
        """Return a role's configuration; None: its primary has set none."""
        return self._configs.get(name)

    def check(self, role: p4r.Role) -> _Config | None:
        """Return the config that an arbitration message gives its role. Raises `Refusal`."""
        config = None
        if role.HasField("config"):
            config = _decode(role)
            if not role.name:
                raise invalid("the default role has no config: it may do everything")
            self._check_overlap(role.name, config)
        if role.name not in self._configs and len(self._configs) >= MAX_ROLES:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"there are {MAX_ROLES} roles already")
        return config

    def configure(self, name: str, config: _Config | None) -> None:
        """Set the config that a role's primary has sent."""
        self._configs = {**self._configs, name: config}

    def register(self, name: str) -> None:
        """Note that a client has this role; it has no config yet."""
        if name not in self._configs:
            self.configure(name, None)

    def may_use(self, name: str, object_id: int, owner: str | None) -> bool:
        """Return True if a role may use an object of P4Info that its annotation gives to `owner`."""
        if not name:
            return True
        if owner is not None and owner != name:
            return False
        config = self._configs.get(name)
        if config is not None:
            return object_id in config.exclusive_p4_ids or object_id in config.shared_p4_ids
        return not any(other is not None and object_id in other.exclusive_p4_ids for other in self._configs.values())

    def may_set_pipeline(self, name: str) -> bool:
        """True if a role may set the device's pipeline."""
        config = self._configs.get(name)
        return config is None or config.can_push_pipeline

    def receives(self, name: str, packet: p4r.PacketIn) -> bool:
        """Return True if a role's primary gets this packet-in."""
        config = self._configs.get(name)
        if config is None:
            return True
        if not config.receives_packet_ins:
            return False
        wanted = config.packet_in_filter
        return not config.HasField("packet_in_filter") or any(
            item.metadata_id == wanted.metadata_id and _number(item.value) == _number(wanted.value)
            for item in packet.metadata
        )

    def _check_overlap(self, name: str, config: _Config) -> None:
        for other_name, other in self._configs.items():
            if other is None or other_name == name:
                continue
            claimed = set(config.exclusive_p4_ids).intersection((*other.exclusive_p4_ids, *other.shared_p4_ids))
            claimed |= set(other.exclusive_p4_ids).intersection(config.shared_p4_ids)
            if claimed:
                raise invalid(
                    f"role {name!r}: id {min(claimed)} is exclusive to one of the roles {name!r}, {other_name!r}"
                )


def object_id(entity: p4r.Entity) -> int | None:
    """Return the P4Info id that an entity names, which may be 0; None for the replication engine and for an empty
    entity.
    """
    match entity.WhichOneof("entity"):
        case "direct_counter_entry":
            return entity.direct_counter_entry.table_entry.table_id
        case "direct_meter_entry":
            return entity.direct_meter_entry.table_entry.table_id
        case "packet_replication_engine_entry" | None:
            return None
        case kind:
            number: int = getattr(getattr(entity, kind), _ID_FIELDS[kind])
            return number


def owners(objects: Iterable[Any]) -> dict[int, str]:
    """Return ids of the objects of a P4Info that an annotation gives to a role, and its name."""
    roles = {}
    for item in objects:
        preamble: p4i.Preamble = item.preamble
        for annotation in preamble.annotations:
            role = _ANNOTATION.fullmatch(annotation.strip())
            if role is not None:
                roles[preamble.id] = role[1]
    return roles


def _decode(role: p4r.Role) -> _Config:
    config = _Config()
    try:
        known = role.config.Unpack(config)
    except DecodeError:
        known = False
    if not known:
        raise invalid(
            f"role {role.name!r} has a config that this switch does not know ({role.config.type_url!r}); "
            f"it takes {_Config.DESCRIPTOR.full_name}, or none"
        )
    ids = [*config.exclusive_p4_ids, *config.shared_p4_ids]
    if 0 in ids:
        raise invalid(f"role {role.name!r}: id 0 names nothing")
    if len(set(ids)) != len(ids):
        raise invalid(f"role {role.name!r}: an id stands twice in its config")
    return config


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")
