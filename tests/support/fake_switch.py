"""A P4Runtime server that keeps what it is written, for tests that need faults: refused updates, silence, tampering.

It checks what a switch would: an insert must be new, a modify or delete must find its entity, and only the primary
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as AnyMessage

from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.p4src import FABRIC_JSON, FABRIC_P4INFO
from weir.topologies.model import Topology

READ_BACK = 50
"""Entities per ReadResponse, so that reads come in several."""


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    def __init__(self) -> None:
        self.entities: dict[bytes, p4r.Entity] = {}
        self.defaults: dict[int, p4r.Entity] = {}
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.configs_set = 0
        self.writes: list[p4r.WriteRequest] = []
        self.packets_out: list[p4r.PacketOut] = []
        self.refuse: Callable[[p4r.Update], bool] = lambda update: False
        self.refuse_pipeline = ""
        """Reason for which pipelines are refused; empty: they are accepted."""
        self.hangs_up = False
        """Streams end as soon as they have begun."""
        self.compiles_s = 0.0
        """Time in seconds to load a program."""
        self.silent = False
        self.mute = asyncio.Event()
        """Cleared: writes are not answered."""
        self.mute.set()
        self.asked = asyncio.Event()
        """A write has come."""
        self.primary = 0
        self.address = ""
        self._stream: asyncio.Task[None] | None = None
        self._to_stream: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str = "127.0.0.1:0") -> None:
        self._server = grpc.aio.server()
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def break_stream(self) -> None:
        """The newest one; the rest goes on."""
        assert self._stream is not None
        self._stream.cancel()

    def send(self, frame: bytes, ingress_port: int = 1) -> None:
        metadata = [p4r.PacketMetadata(metadata_id=1, value=ingress_port.to_bytes(2, "big"))]
        self._to_stream.put_nowait(p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=frame, metadata=metadata)))

    async def StreamChannel(  # type: ignore[override]  # grpc.aio takes coroutines, too; the stubs only iterators
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> None:
        async def answer() -> None:
            while True:
                await context.write(await self._to_stream.get())

        answering = asyncio.create_task(answer())
        self._stream = hearing = asyncio.create_task(self._hear(requests))
        try:
            await asyncio.wait([hearing])
        finally:
            answering.cancel()
            hearing.cancel()

    async def _hear(self, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        async for request in requests:
            if self.hangs_up:
                return
            if request.WhichOneof("update") == "packet":
                self.packets_out.append(request.packet)
            elif not self.silent:
                update = request.arbitration
                self.primary = max(self.primary, update.election_id.low)
                won = update.election_id.low == self.primary
                status = rpc_status.Status(code=rpc_code.OK if won else rpc_code.ALREADY_EXISTS)
                reply = p4r.MasterArbitrationUpdate(device_id=update.device_id, status=status)
                reply.election_id.low = self.primary
                self._to_stream.put_nowait(p4r.StreamMessageResponse(arbitration=reply))

    async def Capabilities(self, request: Any, context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.5.0")

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
        return p4r.GetForwardingPipelineConfigResponse(config=self.config)

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(self.compiles_s)
        if self.refuse_pipeline:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse_pipeline)
        self.config = request.config
        self.configs_set += 1
        self.entities.clear()
        return p4r.SetForwardingPipelineConfigResponse()

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        found: list[p4r.Entity] = []
        for wanted in request.entities:
            if wanted.HasField("table_entry") and wanted.table_entry.is_default_action:
                found += [e for t, e in self.defaults.items() if t == wanted.table_entry.table_id]
            else:
                kind = _kind(wanted)
                found += [e for e in self.entities.values() if _kind(e) == kind]
        for start in range(0, len(found), READ_BACK):
            yield p4r.ReadResponse(entities=found[start : start + READ_BACK])

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        self.asked.set()
        await self.mute.wait()
        self.writes.append(request)
        details = [self._write(update) for update in request.updates]
        if any(code for code, _ in details):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="some updates failed")
            for code, message in details:
                packed = AnyMessage()
                packed.Pack(p4r.Error(canonical_code=code, message=message))
                status.details.append(packed)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, "some updates failed")
        return p4r.WriteResponse()

    def _write(self, update: p4r.Update) -> tuple[int, str]:
        if self.refuse(update):
            return rpc_code.RESOURCE_EXHAUSTED, "table is full"
        entity = update.entity
        if entity.table_entry.is_default_action:
            self.defaults[entity.table_entry.table_id] = entity
            return rpc_code.OK, ""
        key = _key(entity)
        if (key in self.entities) == (update.type == p4r.Update.INSERT):
            return (rpc_code.ALREADY_EXISTS if key in self.entities else rpc_code.NOT_FOUND), "no"
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
        else:
            self.entities[key] = entity
        return rpc_code.OK, ""


def _kind(entity: p4r.Entity) -> str | None:
    if entity.HasField("packet_replication_engine_entry"):
        return entity.packet_replication_engine_entry.WhichOneof("type")
    return entity.WhichOneof("entity")


def _key(entity: p4r.Entity) -> bytes:
    name = p4r.Entity()
    name.CopyFrom(entity)
    match _kind(entity):
        case "table_entry":
            name.table_entry.ClearField("action")
        case "action_profile_member":
            name.action_profile_member.ClearField("action")
        case "action_profile_group":
            name.action_profile_group.ClearField("members")
        case "multicast_group_entry":
            name.packet_replication_engine_entry.multicast_group_entry.ClearField("replicas")
        case "clone_session_entry":
            name.packet_replication_engine_entry.clone_session_entry.ClearField("replicas")
    return name.SerializeToString(deterministic=True)


@asynccontextmanager
async def fake_switches(names: Iterable[str]) -> AsyncIterator[dict[str, FakeSwitch]]:
    """A running switch for each name."""
    async with AsyncExitStack() as stack:
        switches = {name: FakeSwitch() for name in names}
        for switch in switches.values():
            await switch.start()
            stack.push_async_callback(switch.stop)
        yield switches


@asynccontextmanager
async def open_sessions(
    topology: Topology, switches: dict[str, FakeSwitch], timeout_s: float = 60.0
) -> AsyncIterator[dict[str, SwitchSession]]:
    """A controller's session with each switch of the fabric, which has the fabric's program."""
    pipeline = CompiledPipeline(FABRIC_P4INFO, FABRIC_JSON)
    async with AsyncExitStack() as stack:
        yield {
            node.name: await stack.enter_async_context(
                SwitchSession(
                    node.name,
                    switches[node.name].address,
                    device_id=node.device_id,
                    pipeline=pipeline,
                    timeout_s=timeout_s,
                )
            )
            for node in topology.switches
        }
