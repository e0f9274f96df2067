"""A P4Runtime server that keeps written entities and refuses what Stratum for Tofino refuses, with its codes.

Source: stratum/stratum f8f71301, stratum/hal/lib/barefoot (bfrt_node, bfrt_table_manager, bfrt_pre_manager,
bfrt_constants). Failed checks that have no code there are INTERNAL here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from finsy.proto import p4i, p4r, rpc_code

from weir.tests.support.fake_switch import FakeSwitch

API_VERSION = "1.4.0-rc.5"
"""Version in which replicas have a number as port; the field of later versions is not read."""
LAST_CLONE_SESSION = 1015
LAST_GROUP = 65_535
LAST_INSTANCE = 65_535
CLASSES = 8
TAKEN = {
    *("table_entry", "extern_entry", "action_profile_member", "action_profile_group"),
    *("packet_replication_engine_entry", "direct_counter_entry", "counter_entry", "register_entry", "meter_entry"),
    "digest_entry",
}
"""Kinds of entities that it knows; all others are UNIMPLEMENTED."""
BARE_CELL = 7
"""Cell of each meter that is read without a rate, like all cells that have none."""

Refusal = tuple[int, str]


class StratumSwitch(FakeSwitch):
    def __init__(self, p4info: p4i.P4Info) -> None:
        super().__init__()
        self._tables = {table.preamble.id: table for table in p4info.tables}
        self._profiles = {profile.preamble.id: profile for profile in p4info.action_profiles}
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self._meters = {meter.preamble.id: meter for meter in p4info.meters}
        self.rates: dict[tuple[int, int], p4r.Entity] = {}
        """Rates of meters, by id and cell."""

    async def Capabilities(self, request: Any, context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
            await context.abort(grpc.StatusCode.INTERNAL, "this atomicity is not supported")
        return await super().Write(request, context)

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        rest, found = p4r.ReadRequest(), []
        for wanted in request.entities:
            match wanted.WhichOneof("entity"):
                case "meter_entry":
                    if wanted.meter_entry.meter_id not in self._meters:
                        await context.abort(grpc.StatusCode.INTERNAL, "wildcard reads of meters are not supported")
                    found += [rate for (meter, _), rate in self.rates.items() if meter == wanted.meter_entry.meter_id]
                    cell = p4r.MeterEntry(meter_id=wanted.meter_entry.meter_id, index=p4r.Index(index=BARE_CELL))
                    found.append(p4r.Entity(meter_entry=cell))
                case "action_profile_member" | "action_profile_group" as kind:
                    if getattr(wanted, kind).action_profile_id not in self._profiles:
                        await context.abort(grpc.StatusCode.INTERNAL, "reading all action profiles is not supported")
                    rest.entities.append(wanted)
                case _:
                    rest.entities.append(wanted)
        yield p4r.ReadResponse(entities=found)
        async for response in super().Read(rest, context):
            yield response

    def _write(self, update: p4r.Update) -> Refusal:
        if refusal := self._refusal(update):
            return refusal
        if update.entity.HasField("meter_entry"):
            return self._write_rate(update.entity.meter_entry)
        return super()._write(update)

    def _write_rate(self, entry: p4r.MeterEntry) -> Refusal:
        """It keeps kilobits, cut off, and gives out bytes."""
        cell = entry.meter_id, entry.index.index
        self.rates.pop(cell, None)
        if entry.HasField("config"):
            kept = p4r.MeterEntry(meter_id=entry.meter_id, index=entry.index)
            for name in ("cir", "cburst", "pir", "pburst"):
                setattr(kept.config, name, getattr(entry.config, name) * 8 // 1000 * 1000 // 8)
            self.rates[cell] = p4r.Entity(meter_entry=kept)
        return rpc_code.OK, ""

    def _refusal(self, update: p4r.Update) -> Refusal | None:
        entity = update.entity
        kind = entity.WhichOneof("entity")
        if kind not in TAKEN:
            return rpc_code.UNIMPLEMENTED, f"unsupported entity type {kind}"
        match kind:
            case "table_entry":
                return self._refusal_of_entry(update.type, entity.table_entry)
            case "meter_entry":
                return self._refusal_of_rate(update.type, entity.meter_entry)
            case "action_profile_member":
                return self._refusal_of_member(update.type, entity.action_profile_member)
            case "action_profile_group":
                return self._refusal_of_choice(update.type, entity.action_profile_group)
            case "packet_replication_engine_entry":
                copies = entity.packet_replication_engine_entry
                match copies.WhichOneof("type"):
                    case "multicast_group_entry":
                        return _refusal_of_group(copies.multicast_group_entry)
                    case "clone_session_entry":
                        return _refusal_of_session(update.type, copies.clone_session_entry)
                    case other:
                        return rpc_code.UNIMPLEMENTED, f"unsupported entry {other}"
        return None

    def _refusal_of_rate(self, kind: p4r.Update.Type.ValueType, entry: p4r.MeterEntry) -> Refusal | None:
        if kind != p4r.Update.MODIFY:
            return rpc_code.INTERNAL, "a meter's cell can only be modified"
        meter = self._meters.get(entry.meter_id)
        if meter is None or not 0 <= entry.index.index < meter.size:
            return rpc_code.INVALID_ARGUMENT, f"no cell {entry.index.index} of meter {entry.meter_id}"
        rates = entry.config
        if min(rates.cir, rates.pir, rates.cburst, rates.pburst) < 0 or rates.pir < rates.cir:
            return (
                rpc_code.INTERNAL,
                "rates and bursts are not below 0, and the peak is no less than the committed rate",
            )
        return None

    def _refusal_of_member(self, kind: p4r.Update.Type.ValueType, member: p4r.ActionProfileMember) -> Refusal | None:
        """The driver does not let go of a member that a group or an entry names."""
        if member.action_profile_id not in self._profiles:
            return rpc_code.INTERNAL, f"no action profile {member.action_profile_id}"
        if kind == p4r.Update.DELETE and (
            member.member_id in self._chosen() or member.member_id in self._named("action_profile_member_id")
        ):
            return rpc_code.INTERNAL, f"member {member.member_id} is in use"
        return None

    def _refusal_of_choice(self, kind: p4r.Update.Type.ValueType, group: p4r.ActionProfileGroup) -> Refusal | None:
        profile = self._profiles.get(group.action_profile_id)
        if profile is None:
            return rpc_code.INTERNAL, f"no action profile {group.action_profile_id}"
        if any(member.WhichOneof("watch_kind") or not member.weight for member in group.members):
            return rpc_code.INTERNAL, "watch ports and weights of 0 are not supported"
        if any(member.weight != 1 for member in group.members):
            return rpc_code.UNIMPLEMENTED, "member weights greater than 1 are not supported"
        if len(group.members) > profile.max_group_size:
            return rpc_code.INTERNAL, f"{len(group.members)} members"
        if missing := {member.member_id for member in group.members} - self._members():
            return rpc_code.INTERNAL, f"no members {missing}"
        if kind == p4r.Update.DELETE and group.group_id in self._named("action_profile_group_id"):
            return rpc_code.INTERNAL, f"group {group.group_id} is in use"
        return None

    def _members(self) -> set[int]:
        kept = (entity for entity in self.entities.values() if entity.HasField("action_profile_member"))
        return {entity.action_profile_member.member_id for entity in kept}

    def _choices(self) -> dict[int, p4r.ActionProfileGroup]:
        kept = (entity for entity in self.entities.values() if entity.HasField("action_profile_group"))
        return {entity.action_profile_group.group_id: entity.action_profile_group for entity in kept}

    def _chosen(self) -> set[int]:
        return {member.member_id for group in self._choices().values() for member in group.members}

    def _named(self, kind: str) -> set[int]:
        """Members or groups that table entries name."""
        actions = (e.table_entry.action for e in self.entities.values() if e.HasField("table_entry"))
        return {getattr(action, kind) for action in actions if action.WhichOneof("type") == kind}

    def _refusal_of_entry(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> Refusal | None:
        table = self._tables.get(entry.table_id)
        if table is None:
            return rpc_code.INVALID_ARGUMENT, f"no table {entry.table_id}"
        if entry.is_default_action:
            if kind != p4r.Update.MODIFY or entry.match or entry.priority:
                return rpc_code.INTERNAL, "a default can only be modified, and has neither match nor priority"
        else:
            if table.is_const_table:
                return rpc_code.PERMISSION_DENIED, f"{table.preamble.name} has const entries"
            ranked = any(
                field.match_type in (p4i.MatchField.TERNARY, p4i.MatchField.RANGE) for field in table.match_fields
            )
            if ranked != bool(entry.priority):
                return rpc_code.INVALID_ARGUMENT, f"priority {entry.priority}"
        if kind == p4r.Update.DELETE:
            return None
        if (given := entry.action.WhichOneof("type")) not in (
            *("action", "action_profile_member_id", "action_profile_group_id"),
            *((None,) if entry.is_default_action else ()),
        ):
            return rpc_code.UNIMPLEMENTED, f"unsupported action type {given}"
        if entry.HasField("meter_config"):
            return rpc_code.UNIMPLEMENTED, "meter configs on table entries are not supported"
        if given == "action_profile_member_id" and entry.action.action_profile_member_id not in self._members():
            return rpc_code.INTERNAL, f"no member {entry.action.action_profile_member_id}"
        if given == "action_profile_group_id" and entry.action.action_profile_group_id not in self._choices():
            return rpc_code.INTERNAL, f"no group {entry.action.action_profile_group_id}"
        return self._misfit(table, entry)

    def _misfit(self, table: p4i.Table, entry: p4r.TableEntry) -> Refusal | None:
        """Refusal of an entry that the driver has no key field, action parameter or room for: values without leading
        zeros.
        """
        widths = {field.id: field.bitwidth for field in table.match_fields}
        for field in entry.match:
            value = getattr(field, field.WhichOneof("field_match_type") or "").value
            if field.field_id not in widths or int.from_bytes(value).bit_length() > widths[field.field_id]:
                return rpc_code.INTERNAL, f"match {field}"
        if entry.action.WhichOneof("type") == "action":
            action = entry.action.action
            if action.action_id not in {ref.id for ref in table.action_refs}:
                return rpc_code.INTERNAL, f"{table.preamble.name} has no action {action.action_id}"
            parameters = {param.id: param.bitwidth for param in self._actions[action.action_id].params}
            given = {param.param_id: int.from_bytes(param.value).bit_length() for param in action.params}
            if parameters.keys() != given.keys() or any(given[each] > parameters[each] for each in given):
                return rpc_code.INTERNAL, f"parameters of {action.action_id}: {given}"
        return None


def _refusal_of_group(group: p4r.MulticastGroupEntry) -> Refusal | None:
    if group.multicast_group_id > LAST_GROUP:
        return rpc_code.INTERNAL, f"group {group.multicast_group_id}"
    if any(replica.instance > LAST_INSTANCE or not replica.egress_port for replica in group.replicas):
        return rpc_code.INTERNAL, "a replica has a port, and an instance of 16 bits"
    return None


def _refusal_of_session(kind: p4r.Update.Type.ValueType, session: p4r.CloneSessionEntry) -> Refusal | None:
    if not 1 <= session.session_id <= LAST_CLONE_SESSION:
        return rpc_code.INTERNAL, f"invalid session id {session.session_id}"
    if kind == p4r.Update.DELETE:
        return None
    if len(session.replicas) != 1:
        return rpc_code.INTERNAL, "multiple replicas are not supported"
    if session.replicas[0].instance or not session.replicas[0].egress_port:
        return rpc_code.INTERNAL, "a replica has a port and no instance"
    if session.class_of_service >= CLASSES:
        return rpc_code.INTERNAL, "class of service must be smaller than 8"
    return None
