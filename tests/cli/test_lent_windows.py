"""`weir controller` as a process leases windows: a host without contact may not keep its window."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from weir.controller.congestion import WALL_CLOCK_LEASE_NS
from weir.emulator.p4runtime import P4RuntimeServer
from weir.hosts import ControlClient
from weir.tests.cli.test_two_controllers import SERVED, rpc, setting
from weir.tests.support.control_rig import Host
from weir.wire import control_pb2 as pb
from weir.wire.control import WorkerPlan
from weir.wire.control_messages import read_to_host

__all__ = ["rpc"]


@pytest.mark.long
async def test_each_worker_is_told_how_long_its_window_is_lent(rpc: P4RuntimeServer, tmp_path: Path) -> None:
    async with setting(rpc, tmp_path) as of:
        await (await of.start(10)).says(SERVED)

        def registered() -> pb.Registration:
            with ControlClient(of.address) as client:
                return client.register(["h1", "h2"], None)

        async with grpc.aio.insecure_channel(of.address) as channel:
            job = await asyncio.to_thread(registered)
            hosts = [Host(channel) for _ in job.seats]
            for host, seat in zip(hosts, job.seats, strict=True):
                await host.say(join=pb.Join(job=job.job, token=seat.token))
            plans = [read_to_host(pb.ToHost(worker_plan=await host.hear("worker_plan"))) for host in hosts]
    for plan in plans:
        assert isinstance(plan, WorkerPlan)
        assert plan.pacing.window > 0
        assert plan.pacing.lease_ns == WALL_CLOCK_LEASE_NS
