"""A job with groups on its workers' hosts, such as the rows of a mesh: one lifetime, policy and priority."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from math import prod
from pathlib import Path
from typing import Any

import grpc
import pytest

from weir.controller.placement.multi_job.joint import RunningAggregation, seconds_of
from weir.controller.planning.plan import FailurePolicy
from weir.controller.planning.planner import LinkConditions
from weir.controller.service.limits import Limits
from weir.hosts.collectives.mesh import groups_of
from weir.tests.support.control_rig import Host, ServiceRig, refusal, rig
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
async def test_a_host_in_one_job_keeps_its_whole_family(service: ServiceRig, one: int) -> None:
    first, rows = await family(service)
    host = await service.joined((first, *rows)[one], 0)
    await host.hear("joined")
    now_ns, limit_ns = service.service.now_ns(), Limits().unattended_ns
    for at_ns in (now_ns + 2 * limit_ns, now_ns + 4 * limit_ns):
        await check_attendance(service, at_ns)
    assert len(service.controller.jobs) == 3
    host.call.cancel()
    async with asyncio.timeout(60):
        while any(seats.attended for seats in service.service._seating.jobs.values()):
            await asyncio.sleep(0.01)
    await check_attendance(service, now_ns + 8 * limit_ns)
    await all_over(service)


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


# --- jobs and groups that are registered by one call ---


def mesh(shape: tuple[int, ...]) -> list[pb.Group]:
    return [pb.Group(ranks=ranks) for ranks in groups_of(shape)]


async def test_groups_are_admitted_with_their_job(service: ServiceRig) -> None:
    first = await service.register(
        workers=WORKERS, groups=mesh((2, 2)), policy=pb.ABORT, priority=3, gradient_bytes=5000
    )
    assert [[seat.host for seat in group.seats] for group in first.groups] == [
        ["h1", "h3"],
        ["h2", "h4"],
        ["h1", "h2"],
        ["h3", "h4"],
    ]
    assert [[seat.rank for seat in group.seats] for group in first.groups] == [[0, 1]] * 4
    states = await service.jobs()
    assert [(state.job, state.parent) for state in states] == [
        (first.job, 0),
        *((group.job, first.job) for group in first.groups),
    ]
    specs = [job.spec for job in service.controller.jobs.values()]
    assert {(spec.policy, spec.priority, spec.gradient_bytes) for spec in specs} == {(FailurePolicy.ABORT, 3, 5000)}
    assert len({spec.key for spec in specs}) == 5
    assert len({seat.token for job in (first, *first.groups) for seat in job.seats}) == 4 + 4 * 2
    for group in first.groups:
        await running(service, group)
    await service.end(first.job)
    await all_over(service)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"groups": [pb.Group(ranks=[0, 4])]}, "group 0 has ranks 0, 4; give distinct ones of 0…3"),
        ({"groups": [pb.Group(ranks=[0, 1]), pb.Group()]}, "group 1 has ranks none; give distinct ones of 0…3"),
        ({"groups": [pb.Group(ranks=[1, 1])]}, "group 0 has ranks 1, 1; give distinct ones of 0…3"),
        ({"groups": [pb.Group(ranks=[0, 1])], "stripes": 2}, "groups and stripes 2 exclude each other"),
        ({"groups": [pb.Group(ranks=[0, 1])], "accelerators": 1}, "groups of a job that may wait in the queue"),
    ],
)
async def test_impossible_groups_are_refused_with_their_job(
    service: ServiceRig, fields: dict[str, Any], text: str
) -> None:
    code, details = await refusal(service.register(workers=WORKERS, **fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text in details
    assert await service.jobs() == []


async def test_a_family_is_admitted_as_a_whole_or_not_at_all(service: ServiceRig) -> None:
    slots = 1 << 9
    assert all(switch.slots == 2 * slots for switch in FABRIC.switches)
    code, details = await refusal(service.register(workers=WORKERS, groups=mesh((2, 2)) * 2, slots=slots))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("a job with 8 groups, of 512 slots each: no switch has room for the job of ")
    assert service.controller.jobs == {}
    assert set(service.controller.planner.memory.free_slots.values()) == {2 * slots}
    assert await service.service._runner.call(lambda _: service.controller.verify()) == {}
    few = await service.register(workers=WORKERS, groups=mesh((2, 2)) * 2)  # divided, all have room
    assert sum(job.slots for job in (few, *few.groups)) <= slots


async def test_a_switch_that_refuses_one_of_a_family_gets_none(service: ServiceRig) -> None:
    service.switches["s2"].refuse = lambda _: True
    code, _ = await refusal(service.register(workers=WORKERS, groups=mesh((2, 2)), slots=8))
    assert code is not grpc.StatusCode.OK
    assert service.controller.jobs == {}
    service.switches["s2"].refuse = lambda _: False
    assert (await service.register(workers=WORKERS, groups=mesh((2, 2)), slots=8)).groups


async def test_groups_count_as_jobs() -> None:
    async with rig(topology=FABRIC, placed_by="widest", limits=Limits(jobs=4)) as service:
        code, details = await refusal(service.register(workers=WORKERS, groups=mesh((2, 2))))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "5 more are asked for, itself and its groups" in details


async def test_a_family_outlives_the_controller(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/control"
    async with rig(topology=FABRIC, placed_by="widest", address=address, journal=tmp_path / "journal") as service:
        first = await service.register(workers=WORKERS, groups=mesh((2, 2)), slots=8)
    async with rig(topology=FABRIC, placed_by="widest", address=address, journal=tmp_path / "journal") as service:
        assert {state.job: state.parent for state in await service.jobs()} == {
            first.job: 0,
            **{group.job: first.job for group in first.groups},
        }
        failing = await running(service, first.groups[0])
        await failing[0].say(leave=pb.Leave(reason="out of memory"))
        await failing[1].say(leave=pb.Leave(reason="out of memory"))
        await all_over(service)


@pytest.mark.parametrize("seed", range(6))
async def test_trees_placed_together_are_no_slower_than_in_turn(seed: int) -> None:
    """The slowest job first, by the times of all jobs on the links that they share."""
    drawn = random.Random(seed)
    shape = drawn.choice([(2, 2), (2, 3), (2, 4), (3, 2), (2, 2, 2)])
    fabric = leaf_spine(drawn.choice([2, 4]), 2, 4, uplink_rate_bps=drawn.choice([500_000_000, 1_000_000_000]))
    hosts = [host.name for host in fabric.hosts]
    workers = drawn.sample(hosts, prod(shape))
    slowest = []
    for together in (False, True):
        async with rig(topology=fabric, placed_by="widest", together=together) as service:
            await service.register(workers=workers, groups=mesh(shape))
            planner = service.controller.planner
            jobs = [
                RunningAggregation(
                    planner.problem(job.spec, job.spec.workers, LinkConditions({}, {})), job.plan.placement
                )
                for job in service.controller.jobs.values()
            ]
            assert len(jobs) == 1 + len(groups_of(shape))
            slowest.append([float(f"{time:.6g}") for time in sorted(seconds_of(jobs, {}), reverse=True)])
    assert slowest[1] <= slowest[0]
