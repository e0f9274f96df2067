"""Jobs that name a number of workers: they start when there is room, in order, and clients that give up leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from weir.controller.service.seats import JobSeats
from weir.tests.controller.control_rig import Rig, rig
from weir.wire import control_pb2 as pb

SERVER = "h4"


@pytest.fixture
async def service() -> AsyncIterator[Rig]:
    async with rig() as running:
        yield running


def asked(service: Rig, count: int, **fields: Any) -> asyncio.Task[pb.Registration]:
    """A registration that is under way."""
    return asyncio.create_task(service.register(worker_count=count, server=SERVER, **fields))


async def queued(service: Rig, count: int) -> list[pb.QueuedJob]:
    """The queue, once it has this many jobs."""
    while len(found := await service.queued()) != count:
        await asyncio.sleep(0.01)
    return found


def workers(registration: pb.Registration) -> list[str]:
    return [seat.host for seat in registration.seats if seat.HasField("rank")]


async def test_a_job_gets_hosts_at_once_if_there_is_room(service: Rig) -> None:
    first = await asked(service, 2)
    second = await asked(service, 1)
    assert sorted(workers(first) + workers(second)) == ["h1", "h2", "h3"]
    assert await service.queued() == []


async def test_jobs_start_in_order_when_others_end(service: Rig) -> None:
    running = await asked(service, 2)
    large = asked(service, 3, job=101)
    await queued(service, 1)
    small = asked(service, 1, job=102)  # would fit, and does not overtake
    states = await queued(service, 2)
    assert [(each.job, each.position, each.worker_count) for each in states] == [(101, 1, 3), (102, 2, 1)]
    assert states[0].reason == "3 hosts with 1 accelerator are needed, 1 are free"
    assert states[1].reason == f"job 101 is first: {states[0].reason}"
    await service.end(running.job)
    assert workers(await large) == ["h1", "h2", "h3"]
    (state,) = await queued(service, 1)
    assert (state.job, state.position) == (102, 1)
    await service.end(101)
    assert (await small).job == 102


async def test_a_job_of_a_higher_priority_is_before_others(service: Rig) -> None:
    running = await asked(service, 3)
    low, high = asked(service, 3, job=101), asked(service, 3, job=102, priority=2)
    assert {each.job: each.position for each in await queued(service, 2)} == {102: 1, 101: 2}
    await service.end(running.job)
    assert (await high).job == 102
    assert not low.done()
    low.cancel()


async def test_a_client_that_gives_up_leaves_the_queue(service: Rig) -> None:
    running = await asked(service, 3)
    first, second = asked(service, 3), asked(service, 1)
    await queued(service, 2)
    first.cancel()
    await queued(service, 1)
    await service.end(running.job)
    assert len(workers(await second)) == 1


async def test_named_hosts_count_as_taken(service: Rig) -> None:
    await service.register(workers=["h1", "h3"], server=SERVER)
    assert workers(await asked(service, 1)) == ["h2"]


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_count": 4},
        {"worker_count": 1, "accelerators": 2},
        {"worker_count": 1, "memory_bytes": 1},
        {"worker_count": 1, "workers": ["h1"]},
        {"worker_count": 1, "parent": 7},
        {"worker_count": 1, "least_workers": 2},
        {"workers": ["h1"], "parent": 7},
    ],
)
async def test_a_job_that_cannot_be_is_refused_and_not_queued(service: Rig, fields: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.register(server=SERVER, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await service.queued() == []


async def test_a_number_that_is_queued_is_taken(service: Rig) -> None:
    await asked(service, 3)
    waiting = asked(service, 1, job=101)
    await queued(service, 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(service, 1, job=101)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    waiting.cancel()


async def test_a_family_shares_policy_priority_hosts_and_end(service: Rig) -> None:
    parent = await asked(service, 3, policy=pb.ABORT, priority=5)
    group = await service.register(workers=workers(parent)[:2], server=SERVER, parent=parent.job, slots=8)
    inner = await service.register(workers=workers(parent)[:1], server=SERVER, parent=group.job, slots=8)
    other = await service.register(workers=["h1", "h2"], server=SERVER, slots=8)
    jobs = service.controller.jobs
    for member in (group, inner):
        assert (jobs[member.job].spec.policy, jobs[member.job].spec.priority) == (
            jobs[parent.job].spec.policy,
            jobs[parent.job].spec.priority,
        )
    assert {state.job: state.parent for state in await service.jobs()} == {
        parent.job: 0,
        group.job: parent.job,
        inner.job: parent.job,
        other.job: 0,
    }
    await service.end(parent.job)
    while len(left := await service.jobs()) > 1:
        await asyncio.sleep(0.01)
    assert left[0].job == other.job


def test_needs_and_family_outlive_the_controller() -> None:
    told = {"seats": [["h1", 0, "t", False]], "started": True, "stripes": [], "needs": [2, 1024], "parent": 9}
    seats = JobSeats.from_json(7, told)
    assert (seats.needs.accelerators, seats.needs.memory_bytes, seats.parent) == (2, 1024, 9)
    assert seats.as_json() == told
