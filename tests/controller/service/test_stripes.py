"""Jobs whose chunks several trees share: registered as one, joined as one, and over as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from weir.controller.errors import PlanError
from weir.controller.service.limits import Limits
from weir.controller.service.seating import Seating
from weir.tests.support.control_rig import ServiceRig, refusal, rig
from weir.topologies.generators import leaf_spine
from weir.wire import control_pb2 as pb

FABRIC = leaf_spine(2, 2, 2, uplink_rate_bps=500_000_000)
"""Two trees bring as much over the spines, s3 and s4, as a host's link takes."""
WORKERS = ["h1", "h2", "h3", "h4"]


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig(topology=FABRIC, placed_by="widest") as running:
        yield running


async def joined(service: ServiceRig, job: int, registration: pb.Registration, rank: int) -> tuple[Any, pb.Joined]:
    host = service.host()
    await host.say(join=pb.Join(job=job, token=registration.seats[rank].token))
    return host, await host.hear("joined")


async def test_stripes_share_seats_and_begin_and_end_together(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, slots=32, gradient_bytes=1_000_001, stripes=3)
    first, second = registration.stripes
    assert (first.job, first.share, second.share) == (registration.job, 128, 128)
    assert [seat.host for seat in registration.seats] == WORKERS
    jobs = service.controller.jobs
    assert [*jobs] == [first.job, second.job]
    specs = [job.spec for job in jobs.values()]
    assert [spec.gradient_bytes for spec in specs] == [500_000, 500_000]
    assert len({spec.key for spec in specs}) == 2
    assert {name for job in jobs.values() for name in job.plan.switches} == {"s1", "s2", "s3", "s4"}
    assert len({frozenset(job.plan.switches) for job in jobs.values()}) == 2

    hosts = []
    for job, told in ((first.job, [first, second]), (second.job, [])):
        for rank in range(len(WORKERS)):
            host, said = await joined(service, job, registration, rank)
            assert (said.host, list(said.stripes)) == (WORKERS[rank], told)
            hosts.append((job, host))
        for _, host in hosts[-len(WORKERS) :]:
            assert (await host.hear("worker_plan")).job == job
    for state in await service.jobs():
        assert list(state.stripes) == [first, second]

    await service.end(second.job, "enough")
    for job, host in hosts:
        over = await host.hear("ended")
        assert (over.job, over.reason) == (job, "enough")
    assert service.controller.jobs == {}
    assert await service.controller.verify() == {}


async def test_a_worker_that_left_goes_once_the_others_have_its_rounds_of_all_stripes(service: ServiceRig) -> None:
    """The first stripe would go on without it or be aborted, and the second one's last sums would be over with it."""
    registration = await service.register(workers=WORKERS, stripes=2, policy=pb.ABORT)
    numbers = [stripe.job for stripe in registration.stripes]
    stripes = [[(await joined(service, job, registration, rank))[0] for rank in range(len(WORKERS))] for job in numbers]
    for hosts in stripes:
        for host in hosts:
            await host.hear("worker_plan")
            await host.say(resumed=pb.Resumed(generation=1))
    seating = service.service._seating

    async def report(stripe: int, rank: int, rounds: int) -> None:
        await stripes[stripe][rank].say(heartbeat=pb.Heartbeat(rounds=rounds))
        async with asyncio.timeout(60):
            while seating.jobs[numbers[stripe]].seats[WORKERS[rank]].rounds != rounds:
                await asyncio.sleep(0.01)

    for stripe, hosts in enumerate(stripes):
        for rank in range(len(WORKERS)):
            await report(stripe, rank, 7 - (stripe == 1 and rank == 3))
        await hosts[0].say(leave=pb.Leave(calls=3, rounds=7))
        await hosts[1].hear("departures")
    await service.service._runner.call(seating.announce)
    assert [seating.jobs[job].seats["h1"].last for job in numbers] == [None, None]
    await report(1, 3, 7)
    for hosts in stripes:
        assert "rank 0 (h1) has left" in (await hosts[0].hear("ended")).reason


async def test_the_end_of_one_stripe_ends_the_others(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, stripes=2, policy=pb.ABORT)
    numbers = [stripe.job for stripe in registration.stripes]
    hosts = [[(await joined(service, job, registration, rank))[0] for rank in range(len(WORKERS))] for job in numbers]
    for host in (host for its in hosts for host in its):
        await host.hear("worker_plan")
    await hosts[1][3].say(heartbeat=pb.Heartbeat())  # it has run
    await hosts[1][3].say(leave=pb.Leave(reason="out of memory"))
    aborted = await hosts[1][0].hear("abort")
    assert aborted.reason == "rank 3 (h4) failed: out of memory, and the job's policy is to abort"
    ended = await hosts[0][0].hear("ended")
    assert ended.reason == f"job {numbers[1]}, which had a share of its chunks, is over: {aborted.reason}"
    assert service.controller.jobs == {}


async def test_a_job_found_without_all_its_stripes_is_ended(service: ServiceRig) -> None:
    """The journal was cut off between them."""
    registration = await service.register(workers=WORKERS, stripes=2)
    numbers = [stripe.job for stripe in registration.stripes]
    again = Seating(service.controller, service.service._runner, Limits())
    assert {job: dict(seats.stripes) for job, seats in again.jobs.items()} == {
        job: {stripe.job: stripe.share for stripe in registration.stripes} for job in numbers
    }
    (announcing,) = [task for task in service.service._tasks if task.get_name() == "announcements"]
    announcing.cancel()  # else the service that runs here may be the first to see it
    await service.controller.finish(numbers[1], time.monotonic_ns())
    after = Seating(service.controller, service.service._runner, Limits())
    await after.announce(time.monotonic_ns())
    assert service.controller.jobs == {}
    last = pb.Ended(job=numbers[0], reason=f"job {numbers[1]}, which had a share of its chunks, is over")
    assert {seat.last.ended == last for seat in after.ended[numbers[0]].seats.values() if seat.last} == {True}


async def test_one_impossible_stripe_refuses_all(service: ServiceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    admit, asked = service.controller.admit, []

    async def full(spec: Any, now_ns: int) -> Any:
        asked.append(spec.job)
        if len(asked) == 2:
            raise PlanError("no room for another")
        return await admit(spec, now_ns)

    monkeypatch.setattr(service.controller, "admit", full)
    given, details = await refusal(service.register(workers=WORKERS, stripes=2))
    assert (given, details) == (grpc.StatusCode.INVALID_ARGUMENT, "no room for another")
    assert len(asked) == 2
    assert service.controller.jobs == {}
    assert await service.controller.verify() == {}


async def test_there_are_no_more_stripes_than_are_worth_it(service: ServiceRig) -> None:
    alone = await service.register(workers=["h1", "h2"], stripes=16)
    assert list(alone.stripes) == []
    host, said = await joined(service, alone.job, alone, 0)
    assert list(said.stripes) == []
    assert service.controller.jobs.keys() == {alone.job}
    host.call.cancel()


async def test_a_job_that_is_to_have_no_stripes_is_not_divided(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of striping grows with the fabric."""
    monkeypatch.setattr(service.controller, "shares", Mock(side_effect=AssertionError("nobody asked for any")))
    for stripes in (0, 1):
        assert (await service.register(workers=["h1", "h2"], stripes=stripes)).job


async def test_messages_about_a_stripe_name_it(service: ServiceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    admit, jobs, note = service.controller.admit, service.controller.jobs, "it gets less than it asks for"

    async def less(spec: Any, now_ns: int) -> Any:
        messages = await admit(spec, now_ns)
        jobs[spec.job].note = note
        return messages

    monkeypatch.setattr(service.controller, "admit", less)
    alone = await service.register(workers=["h1", "h2"])
    assert alone.note == note
    await service.end(alone.job)
    divided = await service.register(workers=WORKERS, stripes=2)
    first, second = divided.stripes
    assert divided.note == f"job {first.job}: {note}; job {second.job}: {note}"


async def test_each_stripe_counts_as_a_job_and_none_is_left_alone() -> None:
    async with rig(topology=FABRIC, placed_by="widest", limits=Limits(jobs_of_client=2, unattended_ns=1)) as service:
        await service.register(workers=["h1"], gradient_bytes=1000, job=1)  # too little to keep the next from two trees
        given, details = await refusal(service.register(workers=WORKERS, stripes=2))
        assert given is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == (
            "1 jobs of ipv4:127.0.0.1 run, and one client may have 2; 2 more are asked for, one for each stripe; end "
            "one (weir jobs end)"
        )
        await service.end(1)
        registration = await service.register(workers=WORKERS, stripes=2)
        await joined(service, registration.job, registration, 0)
        await asyncio.sleep(1.2)  # announcements look after jobs, every half second
        assert len(await service.jobs()) == 2, "whoever waits in the first one attends the second, too"
