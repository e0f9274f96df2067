"""Rig of the P4Runtime tests: a data path that records frames, and a raw gRPC client."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format
from google.protobuf.message import Message

from weir.emulator.program import Program, ProgramState
from weir.emulator.replication import ReplicationEngine
from weir.tests.paths import P4RUNTIME_PROGRAMS as PROGRAMS
from weir.tests.paths import PROGRAMS as EMULATOR_PROGRAMS

P4INFO = PROGRAMS / "every_entity.p4info.txtpb"
DEVICE_CONFIG = PROGRAMS / "every_entity.json"
CONTROL = "MainIngress."

SetConfig = p4r.SetForwardingPipelineConfigRequest
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class RecordingDatapath:
    """A switch without packets: real programs and real tables; packet-outs are kept, packet-ins made by the test."""

    def __init__(self, device_id: int = 1) -> None:
        self.device_id = device_id
        self.cpu_port = 510
        self.program: Program | None = None
        self.state: ProgramState | None = None
        self.on_packet_in: Callable[[bytes], None] | None = None
        self.on_digest: Callable[[str, list[tuple[int, ...]]], None] | None = None
        self.on_poll: Callable[[], None] | None = None
        self.ports = tuple(range(256))
        self.replication = ReplicationEngine(lambda _: None, nullcontext)
        self.sent: list[bytes] = []

    def compile(self, json: bytes) -> Program:
        return Program.load(json)

    def start(self, program: Program, state: ProgramState) -> None:
        self.program, self.state = program, state

    def paused(self) -> AbstractContextManager[object]:
        return nullcontext()

    def packet_out(self, frame: bytes) -> None:
        self.sent.append(frame)


class Names:
    """Ids of a P4Info by name; names are written without the control's prefix."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.info = info
        self.table = {table.preamble.alias: table.preamble.id for table in info.tables}
        self.action = {action.preamble.alias: action.preamble.id for action in info.actions}
        self.profile = {profile.preamble.alias: profile.preamble.id for profile in info.action_profiles}
        self.counter = {counter.preamble.alias: counter.preamble.id for counter in info.counters}
        self.register = {register.preamble.alias: register.preamble.id for register in info.registers}

    def call(self, name: str, *values: bytes) -> p4r.Action:
        params = [p4r.Action.Param(param_id=i, value=value) for i, value in enumerate(values, 1)]
        return p4r.Action(action_id=self.action[name], params=params)

    def exact_entry(self, dst: bytes, kind: bytes, action: p4r.Action | None = None) -> p4r.TableEntry:
        """An entry of `exact_table`."""
        entry = p4r.TableEntry(table_id=self.table["exact_table"])
        entry.match.add(field_id=1).exact.value = dst
        entry.match.add(field_id=2).exact.value = kind
        if action is not None:
            entry.action.action.CopyFrom(action)
        return entry


def load_info(path: Path = P4INFO) -> p4i.P4Info:
    return text_format.Parse(path.read_text(), p4i.P4Info())


def load_config(cookie: int | None = None) -> p4r.ForwardingPipelineConfig:
    config = p4r.ForwardingPipelineConfig(p4info=load_info(), p4_device_config=DEVICE_CONFIG.read_bytes())
    if cookie is not None:
        config.cookie.cookie = cookie
    return config


EXTERNS_PROGRAM = EMULATOR_PROGRAMS / "externs.json"
EXTERNS_P4INFO = EXTERNS_PROGRAM.with_suffix(".p4info.txtpb")
EXTERNS = load_info(EXTERNS_P4INFO)
"""Meters, digests, value sets, idle timeouts."""


def externs_config(info: p4i.P4Info = EXTERNS) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=EXTERNS_PROGRAM.read_bytes())


STAGES_PROGRAM = PROGRAMS / "stages.json"
STAGES = load_info(PROGRAMS / "stages.p4info.txtpb")
"""Tables in ingress and egress, entries of the program's own, roles, a selector, a meter of a single rate."""


def stages_config() -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(p4info=STAGES, p4_device_config=STAGES_PROGRAM.read_bytes())


def stage(alias: str) -> int:
    """The id of a table, action, meter, counter or profile of `stages.p4`."""
    lists = (STAGES.tables, STAGES.actions, STAGES.meters, STAGES.counters, STAGES.action_profiles)
    return next(item.preamble.id for items in lists for item in items if item.preamble.alias == alias)


def stage_entry(table: str, key: int, action: str, value: int) -> p4r.TableEntry:
    """An entry of an exact table of `stages.p4` whose action has one parameter."""
    entry = p4r.TableEntry(table_id=stage(table))
    entry.match.add(field_id=1).exact.value = bytes((key,))
    entry.action.action.action_id = stage(action)
    entry.action.action.params.add(param_id=1, value=bytes((value,)))
    return entry


def table_id(alias: str) -> int:
    return next(table.preamble.id for table in EXTERNS.tables if table.preamble.alias == alias)


FLOWS = table_id("flows")
METERED = next(action.preamble.id for action in EXTERNS.actions if action.preamble.alias == "metered")


def flow(value: int, given: p4r.MeterConfig | None = None, *, action: bool = True) -> p4r.TableEntry:
    """An entry of `flows` in `externs.p4`."""
    entry = p4r.TableEntry(table_id=FLOWS, meter_config=given)
    entry.match.add(field_id=1).exact.value = value.to_bytes(1, "big")
    if action:
        entry.action.action.action_id = METERED
        entry.action.action.params.add(param_id=1, value=b"\x01")
    return entry


class Stream:
    """One StreamChannel of a raw client."""

    def __init__(self, stub: p4r_grpc.P4RuntimeStub) -> None:
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._call = stub.StreamChannel(iter(self._requests.get, None))

    def send(self, request: p4r.StreamMessageRequest) -> None:
        self._requests.put(request)

    def receive(self) -> p4r.StreamMessageResponse:
        """The next message; raises `grpc.RpcError` when the server has ended the stream."""
        return next(self._call)

    def arbitrate(self, election_id: int | None, device_id: int = 1, role: str = "") -> None:
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = device_id
        if election_id is not None:
            request.arbitration.election_id.CopyFrom(U128.encode(election_id))
        if role:
            request.arbitration.role.name = role
        self.send(request)

    def notice(self) -> str:
        """The next message, an arbitration notice, as `code/highest election id`."""
        update = self.receive().arbitration
        highest = U128.decode(update.election_id) if update.HasField("election_id") else None
        return f"{grpc_code(update.status.code)}/{highest}"

    def ended(self) -> str:
        """The code that the server ends the stream with, after what it still had to say."""
        try:
            while True:
                self.receive()
        except grpc.RpcError as error:
            return error.code().name
        except StopIteration:
            return "OK"

    def close(self) -> None:
        self._requests.put(None)


class Client:
    """A raw P4Runtime client: the generated stub, and shorthand. A context manager: its channel is closed on exit."""

    def __init__(self, address: str, device_id: int = 1, election_id: int = 1) -> None:
        self.device_id = device_id
        self.election_id = U128.encode(election_id)
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_metadata_size", 1 << 20)])
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def stream(self) -> Stream:
        return Stream(self.stub)

    def primary(self) -> Stream:
        """A stream that has become primary."""
        stream = self.stream()
        stream.arbitrate(U128.decode(self.election_id), self.device_id)
        assert stream.notice() == f"OK/{U128.decode(self.election_id)}"
        return stream

    def set_config(
        self,
        config: p4r.ForwardingPipelineConfig | None,
        action: p4r.SetForwardingPipelineConfigRequest.Action.ValueType = SetConfig.VERIFY_AND_COMMIT,
    ) -> str:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.device_id, election_id=self.election_id, action=action, config=config
        )
        return outcome(lambda: self.stub.SetForwardingPipelineConfig(request))

    def get_config(
        self, kind: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        return self.stub.GetForwardingPipelineConfig(
            p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id, response_type=kind)
        )

    def write(self, *updates: tuple[p4r.Update.Type.ValueType, object], role: str = "") -> list[str]:
        """Outcome of every update, `OK` or the canonical code's name; one name alone when the RPC as a whole failed."""
        request = self.write_request(*updates)
        request.role = role
        try:
            self.stub.Write(request)
        except grpc.RpcError as error:
            return [code for code, _ in batch_errors(error)] or [error.code().name]
        return ["OK"] * len(updates)

    def explain(self, *updates: tuple[p4r.Update.Type.ValueType, object]) -> str:
        """The message of the first update that failed."""
        try:
            self.stub.Write(self.write_request(*updates))
        except grpc.RpcError as error:
            return next(message for code, message in batch_errors(error) if code != "OK")
        return ""

    def write_request(self, *updates: tuple[p4r.Update.Type.ValueType, object]) -> p4r.WriteRequest:
        request = p4r.WriteRequest(device_id=self.device_id, election_id=self.election_id)
        for kind, message in updates:
            request.updates.add(type=kind).entity.CopyFrom(entity(message))
        return request

    def read(self, *queries: object) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[entity(query) for query in queries])
        return [found for response in self.stub.Read(request) for found in response.entities]

    def read_outcome(self, *queries: object) -> list[str]:
        """Outcome of every query of a batch."""
        try:
            self.read(*queries)
        except grpc.RpcError as error:
            return [code for code, _ in batch_errors(error)] or [error.code().name]
        return ["OK"] * len(queries)

    def dump(self, *queries: object) -> set[str]:
        """Results of the queries, as text."""
        return {text(found) for found in self.read(*queries)}


_FIELD_OF = {
    field.message_type.full_name: field.name for field in p4r.Entity.DESCRIPTOR.fields if field.message_type is not None
}


def entity(message: object) -> p4r.Entity:
    """An entity around any message that is one."""
    if isinstance(message, p4r.Entity):
        return message
    if isinstance(message, p4r.MulticastGroupEntry):
        message = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
    elif isinstance(message, p4r.CloneSessionEntry):
        message = p4r.PacketReplicationEngineEntry(clone_session_entry=message)
    assert isinstance(message, Message)
    field: dict[str, Any] = {_FIELD_OF[message.DESCRIPTOR.full_name]: message}
    return p4r.Entity(**field)


def text(message: p4r.Entity) -> str:
    return text_format.MessageToString(message, as_one_line=True)


def grpc_code(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


def outcome(call: Callable[[], object]) -> str:
    """`OK`, or the canonical code's name."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def batch_errors(error: grpc.RpcError) -> list[tuple[str, str]]:
    """Code and message of every part of a failed batch."""
    found = []
    for item in error.trailing_metadata() or ():
        if item.key == "grpc-status-details-bin":
            status = rpc_status.Status.FromString(item.value)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            for packed in status.details:
                part = p4r.Error()
                assert packed.Unpack(part)
                found.append((grpc_code(part.canonical_code), part.message))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for another thread's effect; fails when it does not come."""
    done = threading.Event()
    for _ in range(int(seconds * 500)):
        if condition():
            return
        done.wait(0.002)
    raise AssertionError("the expected effect did not come")
