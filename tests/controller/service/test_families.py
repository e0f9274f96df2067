"""A job with groups on its workers' hosts, such as the rows of a mesh: one lifetime, policy and priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from weir.controller.service.limits import Limits
from weir.tests.support.control_rig import Host, ServiceRig, rig
from weir.topologies.generators import leaf_spine
from weir.wire import control_pb2 as pb

FABRIC = leaf_spine(2, 2, 2, uplink_rate_bps=500_000_000)
WORKERS = ["h1", "h2", "h3", "h4"]
ROWS = (["h1", "h2"], ["h3", "h4"])


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig(topology=FABRIC, placed_by="widest") as running:
        yield running


async def family(service: ServiceRig) -> tuple[pb.Registration, list[pb.Registration]]:
    """A job on all hosts with a group for each row."""
    first = await service.register(workers=WORKERS, slots=8, policy=pb.ABORT)
    return first, [await service.register(workers=row, slots=8, parent=first.job) for row in ROWS]


async def running(service: ServiceRig, registration: pb.Registration) -> list[Host]:
    """The hosts of a job that has begun."""
    hosts = [await service.joined(registration, seat) for seat in range(len(registration.seats))]
    for host in hosts:
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
    return hosts


async def all_over(service: ServiceRig) -> None:
    async with asyncio.timeout(60):
        while service.controller.jobs:
            await asyncio.sleep(0.01)
    assert await service.service._runner.call(lambda _: service.controller.verify()) == {}


async def check_attendance(service: ServiceRig, at_ns: int) -> None:
    """Have the service end unattended jobs as at this time."""
    await service.service._runner.call(lambda _: service.service._seating._end_unattended(at_ns))


async def test_an_aborted_group_ends_its_family(service: ServiceRig) -> None:
    first, rows = await family(service)
    hosts = await running(service, first)
    failing, other = [await running(service, row) for row in rows]
    await failing[1].say(leave=pb.Leave(reason="out of memory"))
    why = "rank 1 (h2) failed: out of memory, and the job's policy is to abort"
    assert (await failing[0].hear("abort")).reason == why
    why = f"job {rows[0].job}, a group of it, is over: {why}"
    assert {(await host.hear("ended")).reason for host in hosts} == {why}
    assert {(await host.hear("ended")).reason for host in other} == {f"job {first.job}, its parent, is over: {why}"}
    await all_over(service)


async def test_a_group_that_ends_in_good_order_ends_nothing_else(service: ServiceRig) -> None:
    first, rows = await family(service)
    await running(service, first)
    for host in await running(service, rows[0]):
        await host.say(leave=pb.Leave(calls=0, rounds=0))
    async with asyncio.timeout(60):
        while rows[0].job in service.controller.jobs:
            await asyncio.sleep(0.01)
    for _ in range(2):
        await service.service._runner.call(service.service._seating.announce)
    assert [*service.controller.jobs] == [first.job, rows[1].job]


async def test_a_group_hears_why_its_parent_has_ended(service: ServiceRig) -> None:
    first, rows = await family(service)
    hosts = [host for row in rows for host in await running(service, row)]
    await service.end(first.job, "out of time")
    why = f"job {first.job}, its parent, is over: out of time"
    assert {(await host.hear("ended")).reason for host in hosts} == {why}
    await all_over(service)


@pytest.mark.parametrize("one", [0, 1, 2])
async def test_a_host_in_one_job_keeps_its_whole_family(one: int) -> None:
    async with rig(topology=FABRIC, placed_by="widest", limits=Limits(unattended_ns=1 << 30)) as service:
        first, rows = await family(service)
        seating = service.service._seating
        host = await service.joined((first, *rows)[one], 0)
        await host.hear("joined")
        for now_ns in (1 << 40, 2 << 40):
            await check_attendance(service, now_ns)
        assert len(service.controller.jobs) == 3
        host.call.cancel()
        async with asyncio.timeout(60):
            while any(seats.attended for seats in seating.jobs.values()):
                await asyncio.sleep(0.01)
        await check_attendance(service, (2 << 40) + (1 << 30))
        assert not service.controller.jobs


async def test_a_family_is_over_soon_after_its_groups_are(service: ServiceRig) -> None:
    """Its first job and the other group never had a host."""
    first, rows = await family(service)
    for host in await running(service, rows[0]):
        await host.say(leave=pb.Leave(calls=0, rounds=0))
    async with asyncio.timeout(60):
        while rows[0].job in service.controller.jobs:
            await asyncio.sleep(0.01)
    limit_ns, now_ns = Limits().left_ns, service.service.now_ns()
    await check_attendance(service, now_ns + limit_ns // 2)
    assert [*service.controller.jobs] == [first.job, rows[1].job]
    await check_attendance(service, now_ns + 2 * limit_ns)
    await all_over(service)
