"""A P4Runtime server that keeps what it is written and refuses what Stratum for Tofino refuses, in its codes.

Source: stratum/stratum f8f71301, stratum/hal/lib/barefoot (bfrt_node, bfrt_table_manager, bfrt_pre_manager,
bfrt_constants). What fails a check there without a code of its own is INTERNAL here.
"""

from __future__ import annotations

from typing import Any

import grpc
from finsy.proto import p4i, p4r, rpc_code

from weir.tests.controller.fake_switch import FakeSwitch

API_VERSION = "1.4.0-rc.5"
"""Replicas have their port as a number then; what later versions have in its place is not read."""
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

Refusal = tuple[int, str]


class StratumSwitch(FakeSwitch):
    def __init__(self, p4info: p4i.P4Info) -> None:
        super().__init__()
        self._tables = {table.preamble.id: table for table in p4info.tables}

    async def Capabilities(self, request: Any, context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
            await context.abort(grpc.StatusCode.INTERNAL, "this atomicity is not supported")
        return await super().Write(request, context)

    def _write(self, update: p4r.Update) -> Refusal:
        return self._refusal(update) or super()._write(update)

    def _refusal(self, update: p4r.Update) -> Refusal | None:
        entity = update.entity
        kind = entity.WhichOneof("entity")
        if kind not in TAKEN:
            return rpc_code.UNIMPLEMENTED, f"unsupported entity type {kind}"
        if kind == "table_entry":
            return self._refusal_of_entry(update.type, entity.table_entry)
        if kind == "packet_replication_engine_entry":
            copies = entity.packet_replication_engine_entry
            match copies.WhichOneof("type"):
                case "multicast_group_entry":
                    return _refusal_of_group(copies.multicast_group_entry)
                case "clone_session_entry":
                    return _refusal_of_session(update.type, copies.clone_session_entry)
                case other:
                    return rpc_code.UNIMPLEMENTED, f"unsupported entry {other}"
        return None

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
