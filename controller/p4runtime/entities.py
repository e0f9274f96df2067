"""What a switch holds, between this room's words (`entries`) and finsy's P4Runtime entities. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import finsy as fy
from finsy.p4entity import P4Entity
from finsy.p4schema import P4Schema

from .entries import Call, CloneSession, Entry, FieldValue, Group, Item


def as_entity(item: Item, schema: P4Schema) -> fy.P4TableEntry | fy.P4MulticastGroupEntry | fy.P4CloneSessionEntry:
    """Raises ValueError or KeyError for what the program does not have."""
    match item:
        case Group(group_id, replicas):
            return fy.P4MulticastGroupEntry(group_id, replicas=replicas)
        case CloneSession(session_id, replicas):
            return fy.P4CloneSessionEntry(session_id, replicas=replicas)
        case Entry(table, fields, calls, default, priority):
            actions = [fy.P4TableAction(call.action, **dict(call.args)) for call in calls]
            selector = schema.tables[table].action_profile is not None
            if not selector and len(actions) != 1:
                raise ValueError(f"{len(actions)} actions for a table without selector")
            return fy.P4TableEntry(
                table,
                match=None if default else fy.P4TableMatch(dict(fields)),
                action=fy.P4IndirectAction([(1, action) for action in actions]) if selector else actions[0],
                is_default_action=default,
                priority=priority,
            )


def as_item(entity: P4Entity, schema: P4Schema) -> Item | None:
    """None for constant entries and those that are not the plan's matter."""
    match entity:
        case fy.P4MulticastGroupEntry():
            return Group(entity.multicast_group_id, _replicas(entity.replicas))
        case fy.P4CloneSessionEntry():
            return CloneSession(entity.session_id, _replicas(entity.replicas))
        case fy.P4TableEntry():
            table = schema.tables[entity.table_id]
            if table.is_const or entity.is_const:
                return None
            fields = tuple(sorted((name, _plain(value)) for name, value in (entity.match or {}).items()))
            return Entry(table.name, fields, _calls(entity.action), entity.is_default_action, entity.priority)
        case _:
            return None


def _calls(action: fy.P4TableAction | fy.P4IndirectAction | None) -> tuple[Call, ...]:
    """An action set as calls, each as often as its weight says; a reference as a call named after what it refers
    to.
    """
    if action is None:
        return ()
    if isinstance(action, fy.P4TableAction):
        return (_call(action),)
    if action.action_set is None:
        return (
            Call(
                "member" if action.member_id is not None else "group",
                (("id", action.member_id or action.group_id or 0),),
            ),
        )
    calls: list[Call] = []
    for weight, member in action.action_set:
        calls += [_call(member)] * (weight if isinstance(weight, int) else weight[0])
    return tuple(sorted(calls, key=lambda c: (c.action, c.args)))


def _call(action: fy.P4TableAction) -> Call:
    args = ((name, _plain(value)) for name, value in action.args.items())
    return Call(action.name.rsplit(".", 1)[-1], tuple(sorted((n, v) for n, v in args if isinstance(v, int))))


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
