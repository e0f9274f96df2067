"""Windows of jobs at a real service over a fabric in real time: lent, counted while a job is silent, and given on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from weir.controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions
from weir.controller.congestion.marking import windows_held
from weir.controller.p4runtime.tables import MARKING
from weir.experiments.backends import live as live_module
from weir.experiments.backends.live import live_fabric
from weir.experiments.backends.real_time import RealTimeFabric
from weir.tests.support.control_rig import Host, ServiceRig
from weir.topologies import Endpoint, leaf_spine
from weir.wire import control_pb2 as pb
from weir.wire.control import Pacing, WorkerPlan
from weir.wire.control_messages import read_to_host

WORKERS = ["h1", "h2"]
TO_H1 = Endpoint("s1", 1)


async def seated(rig: ServiceRig) -> tuple[list[Host], Pacing]:
    """Hosts of a job that has begun, and the pacing of its workers."""
    registration = await rig.register(workers=WORKERS, window=128, slots=256)
    hosts = [await rig.joined(registration, seat) for seat in range(len(registration.seats))]
    plan = read_to_host(pb.ToHost(worker_plan=await hosts[0].hear("worker_plan")))
    assert isinstance(plan, WorkerPlan)
    return hosts, plan.pacing


async def living(hosts: list[Host], beat_s: float = 0.3) -> None:
    while True:
        for host in hosts:
            await host.say(heartbeat=pb.Heartbeat(rounds=1, waiting=False))
        await asyncio.sleep(beat_s)


async def test_a_silent_jobs_windows_stay_reserved_until_leases_end() -> None:
    async with (
        live_fabric(leaf_spine(1, 1, 3), lease_ns=5_000_000_000) as live,
        grpc.aio.insecure_channel(live.service.address) as channel,
    ):
        controller = live.service._controller
        rig = ServiceRig(live.service, controller, channel, {})

        def window() -> int:
            return controller.windows.budgets[TO_H1].window

        silent, alone = await seated(rig)
        whole = window()
        assert (alone.window, alone.hold_ns, alone.lease_ns) == (whole, 0, WALL_CLOCK_LEASE_NS)
        hosts, second = await seated(rig)
        life = asyncio.create_task(living(hosts))
        half = window()
        assert whole // 2 - 1 <= half <= whole // 2
        assert second.window == half
        assert second.lease_ns == WALL_CLOCK_LEASE_NS
        assert second.hold_ns > WALL_CLOCK_LEASE_NS, "until the first has obeyed, or has had no result for a lease"

        for host in silent:
            host.call.cancel()
        while len(controller.jobs) == 2:
            assert window() == half
            await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            while window() < whole:
                await asyncio.sleep(0.05)
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life


@pytest.mark.parametrize("makes_room", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_undeclared_traffic_lowers_the_bound_and_the_room(
    makes_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a link is undeclared traffic, while an idle job reports its progress: the switch gets the remaining
    window.
    """
    enter = RealTimeFabric.__enter__

    def beside_others(fabric: RealTimeFabric) -> RealTimeFabric:
        fabric._emulated.add_flow("h3", "h1", payload_bytes=1_000, rate_bps=2.5e6, source_port=9)
        return enter(fabric)

    def options(*args: Any, **named: Any) -> CongestionOptions:
        return CongestionOptions(*args, **{**named, "makes_room": makes_room})

    monkeypatch.setattr(RealTimeFabric, "__enter__", beside_others)
    if makes_room:
        monkeypatch.setattr(live_module, "CongestionOptions", options)
    async with (
        live_fabric(leaf_spine(1, 1, 3, rate_bps=5_000_000), lease_ns=10_000_000_000) as live,
        grpc.aio.insecure_channel(live.service.address) as channel,
    ):
        controller = live.service._controller
        hosts, _ = await seated(ServiceRig(live.service, controller, channel, {}))
        before = controller.windows.budgets[TO_H1]
        assert before.congested_window == before.window
        life = asyncio.create_task(living(hosts, 2.5))  # looks would be every half second
        async with asyncio.timeout(90):
            while controller.windows.undeclared.get(TO_H1, 0) < 0.5:
                await asyncio.sleep(0.05)
            budget = controller.windows.budgets[TO_H1]
            held = budget.window, budget.congested_window
            while windows_held(await controller.switches.read_table(MARKING))[TO_H1] != held:
                await asyncio.sleep(0.05)
        assert budget.refusal.startswith("telemetry sees some 50% of the link (")
        assert (held == (before.window, before.window)) != makes_room
        assert controller.windows.undeclared.keys() == {TO_H1}
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life
