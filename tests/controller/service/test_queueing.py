"""Jobs that name a number of workers: they start when there is room, in order, and clients that give up leave."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from weir.controller.jobs.journal_file import JournalError, JournalFile
from weir.controller.service.limits import Limits
from weir.controller.service.seats import JobSeats
from weir.hosts import ControlClient
from weir.tests.support.control_rig import ServiceRig, rig
from weir.topologies.errors import TopologyError
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Topology
from weir.wire import control_pb2 as pb

SERVER = "h4"


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig() as running:
        yield running


def asked(service: ServiceRig, count: int, **fields: Any) -> asyncio.Task[pb.Registration]:
    """A registration that is under way."""
    return asyncio.create_task(service.register(worker_count=count, server=SERVER, **fields))


def asked_for(service: ServiceRig, **fields: Any) -> asyncio.Task[pb.Registration]:
    """A registration without a server that is under way."""
    return asyncio.create_task(service.register(**fields))


async def queued(service: ServiceRig, count: int) -> list[pb.QueuedJob]:
    """The queue, once it has this many jobs."""
    while len(found := await service.queued()) != count:
        await asyncio.sleep(0.01)
    return found


def workers(registration: pb.Registration) -> list[str]:
    return [seat.host for seat in registration.seats if seat.HasField("rank")]


async def test_a_job_gets_hosts_at_once_if_there_is_room(service: ServiceRig) -> None:
    first = await asked(service, 2)
    second = await asked(service, 1)
    assert sorted(workers(first) + workers(second)) == ["h1", "h2", "h3"]
    assert await service.queued() == []


async def test_jobs_start_in_order_when_others_end(service: ServiceRig) -> None:
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


async def test_a_job_of_a_higher_priority_is_before_others(service: ServiceRig) -> None:
    running = await asked(service, 3)
    low, high = asked(service, 3, job=101), asked(service, 3, job=102, priority=2)
    assert {each.job: each.position for each in await queued(service, 2)} == {102: 1, 101: 2}
    await service.end(running.job)
    assert (await high).job == 102
    assert not low.done()
    low.cancel()


async def test_a_client_that_gives_up_leaves_the_queue(service: ServiceRig) -> None:
    running = await asked(service, 3)
    first, second = asked(service, 3), asked(service, 1)
    await queued(service, 2)
    first.cancel()
    await queued(service, 1)
    await service.end(running.job)
    assert len(workers(await second)) == 1


async def test_waiting_jobs_outlast_lost_switches(service: ServiceRig) -> None:
    running = await service.register(worker_count=3, server=SERVER)
    waiting = [asked(service, 2, job=101, ticket="first"), asked(service, 2, job=102, ticket="second")]
    await queued(service, 2)
    for switch in service.switches.values():
        await switch.stop()
    with contextlib.suppress(grpc.aio.AioRpcError):
        await service.end(running.job)
    await asyncio.sleep(1.5)  # the queue is looked at every 0.5 s
    assert [job.job for job in await service.queued()] == [101, 102]
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()


def two_racks(**fields: Any) -> Topology:
    """Two leaves with two hosts each, with resources of their own."""
    plain = leaf_spine(2, 1, 2)
    return replace(plain, hosts=tuple(replace(host, **fields) for host in plain.hosts))


async def test_named_hosts_wait_for_the_room_that_is_named() -> None:
    async with rig(topology=two_racks(accelerators=2, memory_bytes=4 << 30)) as service:
        first = await service.register(workers=["h1", "h2"], server=SERVER, accelerators=1, memory_bytes=3 << 30)
        shared = await service.register(workers=["h1"], server=SERVER)
        waiting = asked_for(service, job=101, workers=["h2", "h1"], accelerators=1, memory_bytes=2 << 30)
        (state,) = await queued(service, 1)
        assert (state.job, state.worker_count, state.accelerators) == (101, 2, 1)
        assert state.reason.startswith("h2: ")
        assert "h1: " in state.reason
        await service.end(first.job)
        assert workers(await waiting) == ["h2", "h1"]
        assert {job.job for job in await service.jobs()} == {shared.job, 101}


@pytest.mark.parametrize("fields", [{"accelerators": 3}, {"memory_bytes": 1 << 33}])
async def test_named_hosts_that_never_have_room_are_refused(fields: dict[str, int]) -> None:
    async with rig(topology=two_racks(accelerators=2, memory_bytes=4 << 30)) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.register(workers=["h1"], server=SERVER, **fields)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await service.queued() == []


async def test_a_waiting_job_can_be_ended(tmp_path: Path) -> None:
    async with restarted(tmp_path) as service:
        await asked(service, 3)
        first, second = asked(service, 3, job=101, ticket="one"), asked(service, 3, job=102)
        await queued(service, 2)
        await service.end(101, "out of time")
        with pytest.raises(grpc.aio.AioRpcError, match="out of time") as caught:
            await first
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        with pytest.raises(grpc.aio.AioRpcError):  # a client that had lost its call
            await asked(service, 3, ticket="one")
        assert [state.job for state in await queued(service, 1)] == [102]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.end(101)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "102" in str(caught.value.details())
        second.cancel()
        await queued(service, 0)
    with JournalFile(tmp_path / "journal") as journal:
        assert journal.all("queued") == {}


async def test_a_refusing_switch_holds_up_none_but_its_hosts() -> None:
    async with rig(topology=two_racks(), placed_by="widest") as service:
        service.switches["s1"].refuse = lambda update: True
        bound = asked_for(service, job=101, workers=["h1", "h2"], accelerators=1, priority=7)
        (state,) = await queued(service, 1)
        assert "s1" in state.reason
        assert workers(await service.register(worker_count=2)) == ["h3", "h4"]
        service.switches["s1"].refuse = lambda update: False
        assert workers(await bound) == ["h1", "h2"]


async def test_hosts_behind_a_dead_switch_are_not_chosen() -> None:
    async with rig(topology=two_racks(), placed_by="widest") as service:
        await service.switches["s1"].stop()
        while "s1" not in service.controller.switches.out_of_reach:
            await asyncio.sleep(0.01)
        large = asked_for(service, job=101, worker_count=4, priority=7)
        await queued(service, 1)
        assert workers(await service.register(worker_count=2)) == ["h3", "h4"]
        (state,) = await queued(service, 1)
        assert "2 of these cannot be reached" in state.reason
        large.cancel()


async def test_jobs_with_faults_do_not_starve_one_that_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass tries few of them, and the wait before the next attempt leaves all others a turn."""
    monkeypatch.setattr("weir.controller.service.queueing._FAULT_NS", 0)
    async with rig(topology=two_racks(), placed_by="widest") as service:
        admit, tried = service.service._queueing._admit, []

        async def failing(request: pb.RegisterRequest, context: Any, now_ns: int) -> pb.Registration:
            tried.append(request.job)
            if request.job < 200:
                raise TopologyError("no path", place=f"job {request.job}", value=request.job)
            return await admit(request, context, now_ns)

        monkeypatch.setattr(service.service._queueing, "_admit", failing)
        monkeypatch.setattr(type(service.controller), "is_impaired", True)
        stuck = [asked_for(service, job=job, worker_count=1, priority=7) for job in range(101, 111)]
        await queued(service, len(stuck))
        assert (await service.register(worker_count=1, job=200)).job == 200
        assert {*range(101, 111)} <= {*tried}
        for each in stuck:
            each.cancel()


@pytest.mark.parametrize("aged", [True, False])
async def test_after_a_long_fault_an_aged_job_is_before_all_later_ones(
    aged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of the lowest priority needs the hosts of a refusing switch, while jobs of the highest take the others."""
    monkeypatch.setattr("weir.controller.service.queueing._FAULT_NS", 50_000_000)
    if aged:
        monkeypatch.setattr("weir.controller.jobs.queue.AGE_NS", 1)
    async with rig(topology=two_racks(), placed_by="widest") as service:
        service.switches["s1"].refuse = lambda update: True
        old = asked_for(service, job=101, worker_count=4)
        await queued(service, 1)
        for job in (201, 202):  # they pass it, one after the other
            assert workers(await service.register(job=job, worker_count=2, priority=7)) == ["h3", "h4"]
            if job == 201:
                await service.end(job)
        service.switches["s1"].refuse = lambda update: False
        later = asked_for(service, job=203, worker_count=3, priority=7)
        states = await queued(service, 2)
        assert [state.job for state in states] == ([101, 203] if aged else [203, 101])
        await service.end(202)
        first, second = (old, later) if aged else (later, old)
        started = await first
        assert not second.done(), "its hosts are taken"
        await service.end(started.job)
        await second


async def test_named_hosts_count_as_taken(service: ServiceRig) -> None:
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
        {"worker_count": 1, "min_workers": 2},
        {"workers": ["h1"], "parent": 7},
        {"workers": ["h1"], "parent": 7, "accelerators": 1},
        {"workers": ["h1", "h9"], "accelerators": 1},
        {"workers": [SERVER], "accelerators": 1},
    ],
)
async def test_a_job_that_cannot_be_is_refused_and_not_queued(service: ServiceRig, fields: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.register(server=SERVER, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await service.queued() == []


async def test_a_number_that_is_queued_is_taken(service: ServiceRig) -> None:
    await asked(service, 3)
    waiting = asked(service, 1, job=101)
    await queued(service, 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(service, 1, job=101)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    waiting.cancel()


async def test_a_family_shares_policy_priority_hosts_and_end(service: ServiceRig) -> None:
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


async def test_a_group_runs_on_hosts_of_its_family_alone(service: ServiceRig) -> None:
    parent = await asked(service, 2)
    for hosts in (["h3"], [workers(parent)[0], "h3"]):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.register(workers=hosts, server=SERVER, parent=parent.job, slots=8)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [state.job for state in await service.jobs()] == [parent.job]


def test_needs_and_family_outlive_the_controller() -> None:
    told = {
        "seats": [["h1", 0, "t", False]],
        "started": True,
        "stripes": [],
        "needs": [2, 1024],
        "parent": 9,
        "ticket": "x",
    }
    seats = JobSeats.from_json(7, told)
    assert (seats.needs.accelerators, seats.needs.memory_bytes, seats.parent) == (2, 1024, 9)
    assert seats.as_json() == told


def restarted(folder: Path, journal: str = "journal", **options: Any) -> AbstractAsyncContextManager[ServiceRig]:
    """A service at an address of this folder, with one of its journals."""
    return rig(address=f"unix:{folder}/control", journal=folder / journal, **options)


async def test_jobs_and_their_clients_outlast_a_restart(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/control"
    with ControlClient(address) as client:
        async with restarted(tmp_path) as service:
            running = await asked(service, 3)
            large = asyncio.create_task(
                asyncio.to_thread(client.register, server=SERVER, worker_count=3, job=101, wait_s=120)
            )
            await queued(service, 1)
            small = asyncio.create_task(
                asyncio.to_thread(client.register, server=SERVER, worker_count=1, job=102, wait_s=120)
            )
            before = await queued(service, 2)
        async with restarted(tmp_path) as service:
            after = await queued(service, 2)
            assert [each.job for each in after] == [101, 102]
            assert all(new.waited_seconds >= old.waited_seconds for new, old in zip(after, before, strict=True))
            await service.end(running.job)
            assert workers(await large) == ["h1", "h2", "h3"]
            await service.end(101)
            assert (await small).job == 102
            assert await service.queued() == []
    with JournalFile(tmp_path / "journal") as journal:
        assert journal.all("queued") == {}


async def test_after_a_crash_a_ticket_is_worth_a_place_or_the_seats(tmp_path: Path) -> None:
    """The copy is the journal of a controller that died with two jobs queued, the first of which has started since."""
    async with restarted(tmp_path) as service:
        running = await asked(service, 3)
        first = asked(service, 2, job=101, ticket="one")
        await queued(service, 1)
        second = asked(service, 3, job=102, ticket="two")
        await queued(service, 2)
        shutil.copy(tmp_path / "journal", tmp_path / "early")
        await service.end(running.job)
        seats = (await first).seats
        await queued(service, 1)
        shutil.copy(tmp_path / "journal", tmp_path / "late")
        second.cancel()
    async with restarted(tmp_path, "early") as service:
        assert {each.job: each.reason for each in await queued(service, 2)}.keys() == {101, 102}
        overtaking = asked(service, 1, job=103, ticket="three")
        await queued(service, 3)
        again = asked(service, 2, ticket="one")
        await service.end(running.job)
        assert (await again).job == 101
        overtaking.cancel()
    async with restarted(tmp_path, "late") as service:
        answer = await asked(service, 2, ticket="one")
        assert (answer.job, list(answer.seats)) == (101, list(seats))
        assert [each.job for each in await queued(service, 1)] == [102]


async def test_a_job_whose_client_does_not_come_back_leaves(tmp_path: Path) -> None:
    async with restarted(tmp_path) as service:
        running = await asked(service, 3)
        waiting = asked(service, 3, job=101, ticket="one")
        await queued(service, 1)
        shutil.copy(tmp_path / "journal", tmp_path / "early")
        waiting.cancel()
    async with restarted(tmp_path, "early", limits=Limits(absent_ns=0)) as service:
        await queued(service, 0)
        assert [state.job for state in await service.jobs()] == [running.job]
    with JournalFile(tmp_path / "early") as journal:
        assert journal.all("queued") == {}


async def test_a_queued_job_that_cannot_be_any_more_leaves(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "journal") as journal:
        journal.put("queued", "101", {"request": {"job": 101, "worker_count": 9}, "since_ns": 5})
    async with restarted(tmp_path) as service:
        assert await service.queued() == []


@pytest.mark.parametrize(
    "record", [None, 7, {}, {"request": {"workers": 1}, "since_ns": 1}, {"request": {}, "since_ns": "x"}]
)
async def test_a_record_that_cannot_be_read_is_an_error_of_the_journal(record: Any, tmp_path: Path) -> None:
    with JournalFile(tmp_path / "journal") as journal:
        journal.put("queued", "101", record or [])
    with pytest.raises(JournalError):
        async with restarted(tmp_path):
            pass


async def test_a_job_is_not_queued_if_the_journal_cannot_be_written(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int, record: Any) -> None:
        raise JournalError("no space left on device")

    running = await asked(service, 3)
    monkeypatch.setattr(service.controller.jobs.journal, "write_queued", full)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(service, 1)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert await service.queued() == []
    await service.end(running.job)


async def test_a_named_job_cannot_take_a_queued_number(service: ServiceRig) -> None:
    await asked(service, 3)
    waiting = asked(service, 1, job=101)
    await queued(service, 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.register(workers=["h1"], server=SERVER, job=101)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    waiting.cancel()
