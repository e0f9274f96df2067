"""Conversion of a switch's contents between this package's types (`entries`) and finsy's P4Runtime entities. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import finsy as fy
from finsy.p4entity import P4Entity, decode_entity
from finsy.p4schema import P4Schema
from finsy.proto import p4r

from .entries import (
    ActionGroup,
    ActionSpec,
    CloneSession,
    Entry,
    FieldValue,
    Group,
    Item,
    MeterRate,
    ProfileMember,
    call,
)

Written = (
    fy.P4TableEntry
    | fy.P4MulticastGroupEntry
    | fy.P4CloneSessionEntry
    | fy.P4ActionProfileMember
    | fy.P4ActionProfileGroup
    | fy.P4MeterEntry
)


def as_entity(item: Item, schema: P4Schema) -> Written:
    """Convert an item. Raises ValueError or KeyError for an object that the program does not have."""
    match item:
        case Group(group_id, replicas):
            return fy.P4MulticastGroupEntry(group_id, replicas=replicas)
        case CloneSession(session_id, replicas, packet_bytes, priority):
            return fy.P4CloneSessionEntry(
                session_id, class_of_service=priority, packet_length_bytes=packet_bytes, replicas=replicas
            )
        case ProfileMember(profile, member_id, action):
            return fy.P4ActionProfileMember(profile, member_id=member_id, action=_action(action))
        case ActionGroup(profile, group_id, members):
            chosen = [fy.P4Member(member, weight=1) for member in members]
            return fy.P4ActionProfileGroup(profile, group_id=group_id, members=chosen)
        case MeterRate(meter, index, rate, burst):
            return fy.P4MeterEntry(
                meter, index=index, config=fy.P4MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)
            )
        case Entry(table, fields, calls, default, priority):
            selector = schema.tables[table].action_profile is not None
            if not selector and len(calls) != 1:
                raise ValueError(f"{len(calls)} actions for a table without selector")
            return fy.P4TableEntry(
                table,
                match=None if default else fy.P4TableMatch(dict(fields)),
                action=_indirect(calls) if selector else _action(calls[0]),
                is_default_action=default,
                priority=priority,
            )


def unset_meter(item: MeterRate) -> fy.P4MeterEntry:
    """Return the cell without a rate, which is how one is taken away."""
    return fy.P4MeterEntry(item.meter, index=item.index)


def _action(call_: ActionSpec) -> fy.P4TableAction:
    return fy.P4TableAction(call_.action, **dict(call_.args))


def _indirect(calls: tuple[ActionSpec, ...]) -> fy.P4IndirectAction:
    match calls:
        case (ActionSpec("member", ((_, number),)),):
            return fy.P4IndirectAction(member_id=number)
        case (ActionSpec("choice", ((_, number),)),):
            return fy.P4IndirectAction(group_id=number)
        case _:
            return fy.P4IndirectAction([(1, _action(each)) for each in calls])


_DECODED: Final[dict[tuple[int, bytes], Item | None]] = {}
"""Decoded items by program and encoding: a controller reads the same entries of its switches again and again."""
_MOST_DECODED: Final = 1 << 16


def decoded_item(entity: p4r.Entity, schema: P4Schema) -> Item | None:
    """Convert an encoded entity, as `as_item` does. Raises ValueError for one that the program does not have."""
    key = schema.p4cookie, entity.SerializeToString()
    if key not in _DECODED:
        if len(_DECODED) >= _MOST_DECODED:
            _DECODED.clear()
        _DECODED[key] = as_item(decode_entity(entity, schema), schema)
    return _DECODED[key]


def as_item(entity: P4Entity, schema: P4Schema) -> Item | None:
    """Convert an entity; None for constant entries, meter cells without a rate, and objects that plans do not
    contain.
    """
    match entity:
        case fy.P4MulticastGroupEntry():
            return Group(entity.multicast_group_id, _replicas(entity.replicas))
        case fy.P4CloneSessionEntry():
            return CloneSession(
                entity.session_id, _replicas(entity.replicas), entity.packet_length_bytes, entity.class_of_service
            )
        case fy.P4ActionProfileMember():
            if entity.action is None:
                return None
            return ProfileMember(
                schema.action_profiles[entity.action_profile_id].name, entity.member_id, _call(entity.action)
            )
        case fy.P4ActionProfileGroup():
            members = tuple(sorted(member.member_id for member in entity.members or ()))
            return ActionGroup(schema.action_profiles[entity.action_profile_id].name, entity.group_id, members)
        case fy.P4MeterEntry():
            if entity.config is None or entity.index is None:
                return None
            rate, burst = entity.config.pir, entity.config.pburst
            return MeterRate(schema.meters[entity.meter_id].name, entity.index, rate, burst)
        case fy.P4TableEntry():
            table = schema.tables[entity.table_id]
            if table.is_const or entity.is_const:
                return None
            fields = tuple(sorted((name, _plain(value)) for name, value in (entity.match or {}).items()))
            return Entry(table.name, fields, _calls(entity.action), entity.is_default_action, entity.priority)
        case _:
            return None


def _calls(action: fy.P4TableAction | fy.P4IndirectAction | None) -> tuple[ActionSpec, ...]:
    """An action set as calls, each as often as its weight says; a reference as a call named after what it refers
    to.
    """
    if action is None:
        return ()
    if isinstance(action, fy.P4TableAction):
        return (_call(action),)
    if action.action_set is None:
        if action.member_id is not None:
            return (call("member", id=action.member_id),)
        return (call("choice", id=action.group_id or 0),)
    calls: list[ActionSpec] = []
    for weight, member in action.action_set:
        calls += [_call(member)] * (weight if isinstance(weight, int) else weight[0])
    return tuple(sorted(calls, key=lambda c: (c.action, c.args)))


def _call(action: fy.P4TableAction) -> ActionSpec:
    args = ((name, _plain(value)) for name, value in action.args.items())
    return ActionSpec(action.name.rsplit(".", 1)[-1], tuple(sorted((n, v) for n, v in args if isinstance(v, int))))


def _replicas(replicas: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    plain = [(r, 0) if isinstance(r, int) else (r.port, r.instance) for r in replicas]
    return tuple(sorted(plain))


def _plain(value: Any) -> FieldValue:
    """finsy's decoded value as integers: it gives address objects where P4Info has a format annotation."""
    match value:
        case tuple():
            return int(value[0]), int(value[1])
        case str():
            return int(value.replace(":", ""), 16)
        case _ if hasattr(value, "network_address"):
            return int(value.network_address), int(value.prefixlen)
        case _:
            return int(value)
