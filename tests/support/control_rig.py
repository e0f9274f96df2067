"""A control service on a small fabric whose switches keep what they are written, and hosts that speak its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.jobs.journal_file import JournalFile
from weir.controller.placement.strategies import strategy
from weir.controller.service.batch_sizes import RuleOf
from weir.controller.service.heartbeats import HeartbeatSource
from weir.controller.service.limits import Limits
from weir.controller.service.service import ControlService
from weir.tests.support.fake_switch import FakeSwitch, fake_switches, open_sessions
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Topology
from weir.topologies.routing import Routes
from weir.wire import control_pb2 as pb
from weir.wire.control_channel import Tls
from weir.wire.control_messages import ATTEND, END_JOB, LIST_JOBS, REGISTER

TOPOLOGY: Final = leaf_spine(1, 1, 4)
ANSWER_S: Final = 60.0


@dataclass
class ServiceRig:
    """A running service and a channel to it."""

    service: ControlService
    controller: Controller
    channel: grpc.aio.Channel
    switches: dict[str, FakeSwitch]

    async def register(self, **fields: Any) -> pb.Registration:
        call = self.channel.unary_unary(
            REGISTER,
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Registration.FromString,
        )
        return await call(pb.RegisterRequest(**fields), timeout=ANSWER_S)

    async def jobs(self) -> list[pb.JobState]:
        return list((await self._list()).jobs)

    async def queued(self) -> list[pb.QueuedJob]:
        return list((await self._list()).queued)

    async def _list(self) -> pb.JobList:
        call = self.channel.unary_unary(
            LIST_JOBS,
            request_serializer=pb.ListJobsRequest.SerializeToString,
            response_deserializer=pb.JobList.FromString,
        )
        return await call(pb.ListJobsRequest(), timeout=ANSWER_S)

    async def end(self, job: int, reason: str = "") -> None:
        call = self.channel.unary_unary(
            END_JOB,
            request_serializer=pb.EndJobRequest.SerializeToString,
            response_deserializer=pb.EndJobReply.FromString,
        )
        await call(pb.EndJobRequest(job=job, reason=reason), timeout=ANSWER_S)

    def host(self) -> Host:
        return Host(self.channel)

    async def joined(self, registration: pb.Registration, seat: int) -> Host:
        """A host that has said Join with the token of that seat."""
        host = self.host()
        await host.say(join=pb.Join(job=registration.job, token=registration.seats[seat].token))
        return host


class Host:
    """One Attend stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        attend = channel.stream_stream(
            ATTEND, request_serializer=pb.FromHost.SerializeToString, response_deserializer=pb.ToHost.FromString
        )
        self.call = attend()

    async def say(self, **content: Any) -> None:
        """Write a message; `end` has the status of a stream that the service has ended before."""
        with suppress(grpc.aio.AioRpcError):
            await self.call.write(pb.FromHost(**content))

    async def hear(self, content: str) -> Any:
        """The next message of this kind; others are passed over."""
        async with asyncio.timeout(ANSWER_S):
            while isinstance(message := await self.call.read(), pb.ToHost):
                if message.WhichOneof("content") == content:
                    return getattr(message, content)
        raise AssertionError(f"the stream ended without {content}: {await self.call.code()}")

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """Status and message at the end of the stream."""
        async with asyncio.timeout(ANSWER_S):
            with suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            return await self.call.code(), await self.call.details()


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Require that a call is refused; return the status and its words."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


@asynccontextmanager
async def rig(
    *,
    address: str = "127.0.0.1:0",
    lease_ns: int | None = None,
    tls: Tls | None = None,
    client: Tls | None = None,
    limits: Limits | None = None,
    heartbeats: HeartbeatSource | None = None,
    size_rule: RuleOf | None = None,
    topology: Topology = TOPOLOGY,
    placed_by: str = "ps",
    together: bool = False,
    journal: Path | None = None,
    order: str = "fair",
    contains_failures: bool = False,
) -> AsyncIterator[ServiceRig]:
    """`client`: credentials of the channel; without, it is not secured. `placed_by` is a strategy's name; `together`:
    families are placed jointly. Without a journal nothing is stored.
    """
    async with AsyncExitStack() as stack:
        stored = None if journal is None else stack.enter_context(JournalFile(journal))
        switches = await stack.enter_async_context(fake_switches(node.name for node in topology.switches))
        sessions = await stack.enter_async_context(open_sessions(topology, switches, ANSWER_S))
        options = ControllerOptions(
            probe_period_ns=10**12,
            solve_period_ns=0,
            together=together,
            lease_ns=lease_ns,
            order=order,
            contains_failures=contains_failures,
        )
        controller = Controller(
            topology,
            Routes(topology),
            sessions,
            strategy(placed_by),
            options,
            journal=stored,
            now_ns=time.monotonic_ns(),
        )
        await controller.start()
        service = await stack.enter_async_context(
            ControlService(
                controller,
                address=address,
                tls=tls,
                allow_anyone=True,
                limits=limits,
                heartbeats=heartbeats,
                size_rule=size_rule,
            )
        )
        channel = (
            grpc.aio.insecure_channel(service.address)
            if client is None
            else grpc.aio.secure_channel(
                service.address, client.channel_credentials(), options=[("grpc.ssl_target_name_override", "localhost")]
            )
        )
        async with channel:
            yield ServiceRig(service, controller, channel, switches)


def certificates(folder: Path, name: str) -> Tls:
    """A self-signed certificate that is its own authority, by openssl."""
    import subprocess

    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -days 2 -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return Tls(certificate, key, certificate)
