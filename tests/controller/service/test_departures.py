"""Workers that leave a job in good order before the others: notices to the others, and the job's policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from weir.tests.support.control_rig import TOPOLOGY, Host, ServiceRig, rig
from weir.wire import control_pb2 as pb
from weir.wire.control import Departure
from weir.wire.control_messages import read_departures

WORKERS = ["h1", "h2", "h3"]
POLICIES = [(pb.ABORT, True), (pb.WAIT, True), (pb.CONTINUE, False)]


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig() as running:
        yield running


def departed(rank: int, calls: int) -> Departure:
    host = WORKERS[rank]
    return Departure(rank, host, int(TOPOLOGY.host(host).address), calls)


async def started(service: ServiceRig, policy: int, server: str = "") -> tuple[pb.Registration, list[Host]]:
    registration = await service.register(workers=WORKERS, server=server, policy=policy)
    hosts = [await service.joined(registration, rank) for rank in range(3 + bool(server))]
    for host in hosts[:3]:
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
    return registration, hosts


@pytest.mark.parametrize(("policy", "final"), POLICIES)
async def test_a_departure_reaches_the_remaining_workers(service: ServiceRig, policy: int, final: bool) -> None:
    _, hosts = await started(service, policy)
    await hosts[0].say(leave=pb.Leave(calls=3))
    for host in hosts[1:]:
        told = await host.hear("departures")
        assert (read_departures(told), told.final) == ((departed(0, 3),), final)


async def test_each_departure_is_sent_once_and_not_to_those_who_left(service: ServiceRig) -> None:
    _, hosts = await started(service, pb.ABORT)
    await hosts[0].say(leave=pb.Leave(calls=3))
    assert read_departures(await hosts[1].hear("departures")) == (departed(0, 3),)
    await hosts[1].say(leave=pb.Leave(calls=4))
    told: list[Departure] = []
    while len(told) < 2:
        told += read_departures(await hosts[2].hear("departures"))
    assert told == [departed(0, 3), departed(1, 4)]
    await hosts[2].say(leave=pb.Leave(calls=4))
    for host in hosts:
        assert (await host.hear("ended")).reason == "all workers have left"


async def test_workers_that_leave_together_are_told_nothing(service: ServiceRig) -> None:
    _, hosts = await started(service, pb.ABORT)
    for host in hosts:
        await host.say(leave=pb.Leave(calls=5))
    for host in hosts:
        kinds = []
        async with asyncio.timeout(60):
            while isinstance(message := await host.call.read(), pb.ToHost):
                kinds.append(message.WhichOneof("content"))
        assert "abort" not in kinds
        assert kinds[-1] == "ended"
        assert await host.end() == (grpc.StatusCode.OK, "")


async def test_a_reconnected_worker_gets_earlier_departures_again(service: ServiceRig) -> None:
    registration, hosts = await started(service, pb.ABORT)
    await hosts[0].say(leave=pb.Leave(calls=3))
    await hosts[1].hear("departures")
    again = service.host()
    await again.say(join=pb.Join(job=registration.job, token=registration.seats[1].token, generation=1))
    assert read_departures(await again.hear("departures")) == (departed(0, 3),)


async def test_a_worker_that_left_goes_once_the_others_have_its_rounds(service: ServiceRig) -> None:
    _, hosts = await started(service, pb.ABORT)
    await hosts[0].say(heartbeat=pb.Heartbeat(rounds=7))
    await hosts[0].say(leave=pb.Leave(calls=3, rounds=7))
    await hosts[1].say(heartbeat=pb.Heartbeat(rounds=7))
    await hosts[1].hear("departures")
    await hosts[1].say(leave=pb.Leave(calls=3, rounds=7))
    await hosts[2].say(heartbeat=pb.Heartbeat(rounds=6))
    assert len(read_departures(await hosts[2].hear("departures"))) >= 1
    [jobs] = service.service._seating.jobs.values()
    seats = [*jobs.seats.values()]
    assert [seat.last for seat in seats[:3]] == [None] * 3
    await hosts[2].say(heartbeat=pb.Heartbeat(rounds=7))
    for rank in (0, 1):
        assert f"rank {rank} ({WORKERS[rank]}) has left" in (await hosts[rank].hear("ended")).reason
        assert await hosts[rank].end() == (grpc.StatusCode.OK, "")
    assert seats[2].last is None
    await hosts[2].say(leave=pb.Leave(calls=9, rounds=20))
    assert (await hosts[2].hear("ended")).reason == "all workers have left"


async def test_a_worker_stays_for_rounds_that_its_sums_have_got_after_it_left(service: ServiceRig) -> None:
    """A new generation without a lost worker sums chunks again, in rounds behind those that the Leave has counted."""
    _, hosts = await started(service, pb.CONTINUE)
    [jobs] = service.service._seating.jobs.values()
    leaver, other, last = [*jobs.seats.values()][:3]

    async def report(waits: bool, *rounds: int) -> None:
        for host, seat, done in zip(hosts, (leaver, other, last), rounds, strict=False):
            await host.say(heartbeat=pb.Heartbeat(rounds=done, waiting=waits and seat is leaver))
        async with asyncio.timeout(60):
            while (leaver.rounds, other.rounds, last.rounds) != rounds:
                await asyncio.sleep(0.01)

    await report(True, 3, 3, 3)
    await hosts[0].say(leave=pb.Leave(calls=3, rounds=7))
    for host in hosts[1:]:
        await host.hear("departures")
    for waits, *rounds in [(True, 7, 9, 9), (False, 9, 8, 9)]:
        await report(waits, *rounds)
        await service.service._runner.call(service.service._seating.announce)
        assert leaver.last is None, (waits, *rounds)
    await report(False, 9, 9, 9)
    assert "rank 0 (h1) has left" in (await hosts[0].hear("ended")).reason


async def test_a_worker_without_sums_goes_at_once_and_the_others_learn_of_it(service: ServiceRig) -> None:
    _, hosts = await started(service, pb.ABORT)
    await hosts[0].say(leave=pb.Leave(calls=0, rounds=0))
    await hosts[0].hear("ended")
    for host in hosts[1:]:
        assert read_departures(await host.hear("departures")) == (departed(0, 0),)


async def test_a_parameter_server_is_told_of_no_departure(service: ServiceRig) -> None:
    _, hosts = await started(service, pb.ABORT, server="h4")
    await hosts[0].say(leave=pb.Leave(calls=3))
    await hosts[1].hear("departures")
    for host in hosts[1:3]:
        await host.say(leave=pb.Leave(calls=3))
    kinds = []
    async with asyncio.timeout(60):
        while isinstance(message := await hosts[3].call.read(), pb.ToHost):
            kinds.append(message.WhichOneof("content"))
    assert "departures" not in kinds
    assert kinds[-1] == "ended"
