"""A small synchronous P4Runtime client, for driving a switch from a test.

It takes the emulator's own words (`emulator.entries`) and writes them as P4Runtime messages, so that one list of
entries programs both switches of a comparison.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    CloneSession,
    Exact,
    GroupRef,
    Lpm,
    Match,
    MemberRef,
    Optional,
    Range,
    Replica,
    TableAction,
    TableEntry,
    Ternary,
)
from weir.emulator.program import MeterRates


def read_p4info(path: Path) -> Any:
    info = p4i.P4Info()
    text_format.Parse(path.read_text(), info)
    return info


class Encoder:
    """Writes `emulator.entries` as P4Runtime entities, with the ids and widths of one P4Info."""

    def __init__(self, info: Any) -> None:
        self.tables = {table.preamble.name: table for table in info.tables}
        self.actions = {action.preamble.name: action for action in info.actions}
        self.profiles = {profile.preamble.name: profile for profile in info.action_profiles}
        self.counters = {counter.preamble.name: counter for counter in info.counters}
        self.meters = {meter.preamble.name: meter for meter in info.meters}
        self.direct_counters = {counter.direct_table_id: counter for counter in info.direct_counters}

    def table_entry(self, table: str, entry: TableEntry) -> Any:
        schema = self.tables[table]
        message = p4r.TableEntry(table_id=schema.preamble.id, priority=entry.priority)
        for field, match in zip(schema.match_fields, entry.match, strict=True):
            encode_match(message, field, match)
        encode_action(message.action, self, entry.action)
        return p4r.Entity(table_entry=message)

    def default_entry(self, table: str, call: ActionCall) -> Any:
        message = p4r.TableEntry(table_id=self.tables[table].preamble.id, is_default_action=True)
        message.action.action.CopyFrom(self.action(call))
        return p4r.Entity(table_entry=message)

    def action(self, call: ActionCall) -> Any:
        schema = self.actions[call.name]
        message = p4r.Action(action_id=schema.preamble.id)
        for param, value in zip(schema.params, call.params, strict=True):
            message.params.add(param_id=param.id, value=bytestring(value))
        return message

    def meter_entry(self, meter: str, index: int, rates: MeterRates) -> Any:
        """Entry of a meter with two rates, whole numbers per second."""
        message = p4r.MeterEntry(meter_id=self.meters[meter].preamble.id, index=p4r.Index(index=index))
        message.config.cir, message.config.cburst = int(rates.committed_rate), rates.committed_burst
        message.config.pir, message.config.pburst = int(rates.peak_rate), rates.peak_burst
        return p4r.Entity(meter_entry=message)

    def member(self, profile: str, member_id: int, call: ActionCall) -> Any:
        message = p4r.ActionProfileMember(
            action_profile_id=self.profiles[profile].preamble.id, member_id=member_id, action=self.action(call)
        )
        return p4r.Entity(action_profile_member=message)

    def group(self, profile: str, group_id: int, members: Iterable[tuple[int, int]]) -> Any:
        """`members` are (member id, weight)."""
        message = p4r.ActionProfileGroup(
            action_profile_id=self.profiles[profile].preamble.id, group_id=group_id, max_size=0
        )
        for member_id, weight in members:
            message.members.add(member_id=member_id, weight=weight)
        return p4r.Entity(action_profile_group=message)


def multicast_group(group_id: int, replicas: Iterable[Replica]) -> Any:
    entity = p4r.Entity()
    group = entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = group_id
    for replica in replicas:
        group.replicas.add(egress_port=replica.port, instance=replica.instance)
    return entity


def clone_session(session_id: int, session: CloneSession) -> Any:
    entity = p4r.Entity()
    message = entity.packet_replication_engine_entry.clone_session_entry
    message.session_id = session_id
    message.class_of_service = session.class_of_service
    message.packet_length_bytes = session.packet_length_bytes
    for replica in session.replicas:
        message.replicas.add(egress_port=replica.port, instance=replica.instance)
    return entity


def encode_match(entry: Any, field: Any, match: Match) -> None:
    """Append a match of a field of P4Info, canonically: one that matches anything is left out."""
    field_id: int = field.id
    match match:
        case Exact(value):
            entry.match.add(field_id=field_id).exact.value = bytestring(value)
        case Lpm(value, prefix_length) if prefix_length > 0:
            lpm = entry.match.add(field_id=field_id).lpm
            lpm.value, lpm.prefix_len = bytestring(value), prefix_length
        case Ternary(value, mask) if mask != 0:
            ternary = entry.match.add(field_id=field_id).ternary
            ternary.value, ternary.mask = bytestring(value), bytestring(mask)
        case Range(low, high) if (low, high) != (0, (1 << field.bitwidth) - 1):
            range_ = entry.match.add(field_id=field_id).range
            range_.low, range_.high = bytestring(low), bytestring(high)
        case Optional(value) if value is not None:
            entry.match.add(field_id=field_id).optional.value = bytestring(value)


def encode_action(message: Any, encoder: Encoder, action: TableAction) -> None:
    match action:
        case ActionCall():
            message.action.CopyFrom(encoder.action(action))
        case MemberRef(member_id):
            message.action_profile_member_id = member_id
        case GroupRef(group_id):
            message.action_profile_group_id = group_id
        case ActionSet(actions):
            for weighted in actions:
                message.action_profile_action_set.action_profile_actions.add(
                    action=encoder.action(weighted.call), weight=weighted.weight
                )


def bytestring(value: int) -> bytes:
    """P4Runtime's canonical bytestring: big-endian, no leading zeros, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class Refused(Exception):
    """The switch refused updates; the message has the switch's reason and each update."""


def refusal(error: Any, request: Any) -> str:
    """The reasons that a refused WriteRequest carries, one for each refused update (P4Runtime 1.5, section 12.3)."""
    reasons = []
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail, update in zip(rpc_status.Status.FromString(value).details, request.updates, strict=True):
                reason = p4r.Error.FromString(detail.value)
                if reason.canonical_code:
                    reasons.append(f"{reason.canonical_code} {reason.message}: {update}")
    return "\n".join(reasons) or f"{error.code()} {error.details()}"


class Client:
    """One primary controller's session. A context manager; every call fails within its time limit."""

    def __init__(self, address: str, device_id: int, *, timeout_s: float = 60.0) -> None:
        self._device_id = device_id
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arrived = threading.Condition()
        self._messages: list[Any] = []
        self._failure: str | None = None
        self.encoder: Encoder | None = None

    def __enter__(self) -> Client:
        grpc.channel_ready_future(self._channel).result(timeout=self._timeout_s)
        self._reader = threading.Thread(target=self._read, args=(self._stub.StreamChannel(self._outgoing()),))
        self._reader.start()
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = self._device_id
        request.arbitration.election_id.CopyFrom(U128.encode(1))
        self._requests.put(request)
        try:
            answer = self._take("arbitration", self._timeout_s)
            if answer is None or answer.arbitration.status.code != 0:
                raise RuntimeError(f"the switch did not make this client primary: {answer or self._failure}")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(None)
        self._channel.close()
        self._reader.join()

    def set_pipeline(self, p4info: Any, blob: bytes) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=U128.encode(1),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=blob),
        )
        self._stub.SetForwardingPipelineConfig(request, timeout=self._timeout_s)
        self.encoder = Encoder(p4info)

    def insert(self, *entities: Any) -> None:
        self._write(p4r.Update.INSERT, entities)

    def modify(self, *entities: Any) -> None:
        self._write(p4r.Update.MODIFY, entities)

    def delete(self, *entities: Any) -> None:
        self._write(p4r.Update.DELETE, entities)

    def read(self, entity: Any) -> list[Any]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=[entity])
        return [found for part in self._stub.Read(request, timeout=self._timeout_s) for found in part.entities]

    def counter(self, name: str) -> list[tuple[int, int]]:
        """(packets, bytes) of every cell of an indirect counter."""
        assert self.encoder is not None
        schema = self.encoder.counters[name]
        found = self.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=schema.preamble.id)))
        cells = {entity.counter_entry.index.index: entity.counter_entry.data for entity in found}
        return [(cells[i].packet_count, cells[i].byte_count) for i in range(schema.size)]

    def direct_counter(self, table: str) -> dict[tuple[object, ...], tuple[int, int]]:
        """Packets and bytes of every entry of a table with a direct counter, by priority and match."""
        assert self.encoder is not None
        schema = self.encoder.tables[table]
        whole = {field.id: bytestring((1 << field.bitwidth) - 1) for field in schema.match_fields}
        wanted = p4r.TableEntry(table_id=schema.preamble.id)
        counted = {}
        for entity in self.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=wanted))):
            entry, counts = entity.direct_counter_entry.table_entry, entity.direct_counter_entry.data
            matches = [  # PI shows a range that has all numbers, which P4Runtime leaves out
                match.SerializeToString()
                for match in entry.match
                if (match.range.low, match.range.high) != (b"\0", whole[match.field_id])
            ]
            counted[entry.priority, *matches] = counts.packet_count, counts.byte_count
        return counted

    def round_trip(self) -> None:
        """Ask and wait for an answer, behind which no message that the switch sent before should be."""
        self._stub.Capabilities(p4r.CapabilitiesRequest(), timeout=self._timeout_s)

    def packet_out(self, payload: bytes, metadata: Iterable[tuple[int, int]]) -> None:
        """`metadata` are (id, value)."""
        request = p4r.StreamMessageRequest()
        request.packet.payload = payload
        for metadata_id, value in metadata:
            request.packet.metadata.add(metadata_id=metadata_id, value=bytestring(value))
        self._requests.put(request)

    def packet_in(self, timeout_s: float) -> Any | None:
        """The next packet-in (payload and metadata), or None if none comes within the time."""
        message = self._take("packet", timeout_s)
        return None if message is None else message.packet

    def _write(self, kind: Any, entities: Iterable[Any]) -> None:
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]
        if updates:
            request = p4r.WriteRequest(device_id=self._device_id, election_id=U128.encode(1), updates=updates)
            try:
                self._stub.Write(request, timeout=self._timeout_s)
            except grpc.RpcError as error:
                raise Refused(refusal(error, request)) from error

    def _outgoing(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self, responses: Iterator[Any]) -> None:
        try:
            for message in responses:
                with self._arrived:
                    self._messages.append(message)
                    self._arrived.notify_all()
        except grpc.RpcError as error:
            with self._arrived:
                self._failure = str(error)
                self._arrived.notify_all()

    def _take(self, kind: str, timeout_s: float) -> Any | None:
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                for i, message in enumerate(self._messages):
                    if message.WhichOneof("update") == kind:
                        return self._messages.pop(i)
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._failure is not None:
                    return None
                self._arrived.wait(remaining)
